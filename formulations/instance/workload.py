"""The chain of layers to train, with what each costs in parameters, FLOPs and activations.

Figures are per sequence and independent of degrees; `formulations.costs` turns them into
times and bytes per GPU. FLOPs: Cheng et al. 2024 and Narayanan et al. 2021 (a matrix product of
m x k by k x n counts 2mkn). Activations: Korthikanti et al. 2023, section 4, itemised.
"""

from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from formulations.instance.extent import (
    MOST_CHAIN,
    Batch,
    Count,
    Figure,
    Name,
    Text,
    first_beyond,
)
from formulations.instance.precision import Precision
from formulations.instance.record import Record

VOCABULARY_MULTIPLE = 128  # Megatron-LM pads the vocabulary to a multiple of 128 * tp
BACKWARD_PER_FORWARD = 2  # FLOPs (Narayanan et al. 2021, appendix)

Width = Annotated[int, Field(ge=1, le=64)]  # bytes per parameter


def padded_vocabulary(vocabulary_size: int, tp: int) -> int:
    """Rows of the vocabulary matrix as Megatron-LM stores it on tp ranks."""
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-vocabulary_size // multiple) * multiple


class Layer(Record):
    """One item of the chain embedding, block 1..L, head. All figures are for one sequence."""

    kind: Name  #: profile key: embedding, block, encoder, decoder, head
    is_block: bool
    sharded_parameters: Figure  #: split evenly over the tp ranks
    replicated_parameters: Figure  #: held whole by every tp rank (norms, positions)
    vocabulary_rows: Figure = 0  #: rows of a vocabulary matrix, before padding
    vocabulary_columns: Figure = 0
    tied_copy: bool = False  #: the vocabulary matrix is the embedding's; a copy only if pp > 1
    forward_flops: Figure  #: all tp ranks together
    unweighted_flops: Figure = 0  #: of these without a parameter: scores
    #: What a fused attention kernel works out in place of `unweighted_flops`; 0: none is used.
    attention_flops: Figure = 0
    kernels: Figure  #: kernel launches of one forward pass on one GPU
    forward_all_reduces: Figure = 0  #: over the tp ranks, 2*s*h bytes each
    backward_all_reduces: Figure = 0
    replicated_activation_bytes: Figure  #: kept for backward by every tp rank
    sharded_activation_bytes: Figure  #: kept for backward, split over the tp ranks
    #: Of the bytes kept for backward, those that no weight gradient needs.
    released_replicated_bytes: Figure = 0
    released_sharded_bytes: Figure = 0
    input_bytes: Figure  #: all that full recomputation keeps
    #: Tensors of `Workload.boundary_bytes` that cross a boundary right after the layer.
    output_tensors: int = Field(default=1, ge=1, le=2)

    @property
    def parameters(self) -> int:
        """Parameters trained with the layer, unpadded; a tied copy counts nothing."""
        matrix = 0 if self.tied_copy else self.vocabulary_rows * self.vocabulary_columns
        return self.sharded_parameters + self.replicated_parameters + matrix

    def parameters_per_gpu(self, tp: int, pp: int) -> int:
        """Parameters that one GPU of a group of `tp` holds for this layer."""
        vocabulary = padded_vocabulary(self.vocabulary_rows, tp) // tp * self.vocabulary_columns
        if self.tied_copy and pp == 1:
            vocabulary = 0
        return -(-self.sharded_parameters // tp) + self.replicated_parameters + vocabulary

    def activation_bytes(self, tp: int) -> int:
        """Bytes that one GPU keeps for the backward pass of one sequence, no recomputation."""
        return self.replicated_activation_bytes + -(-self.sharded_activation_bytes // tp)

    def weight_gradient_bytes(self, tp: int) -> int:
        """Bytes that one GPU keeps for one sequence from its input to its weight gradients."""
        sharded = self.sharded_activation_bytes - self.released_sharded_bytes
        whole = self.replicated_activation_bytes - self.released_replicated_bytes
        return whole + -(-sharded // tp)

    @property
    def weight_gradient_share(self) -> float:
        """Share of the backward pass's FLOPs, twice the forward's, that weight gradients take."""
        if not self.forward_flops:
            return 0.0
        return (self.forward_flops - self.unweighted_flops) / (2 * self.forward_flops)


class LayerRun(Record):
    """`count` equal layers in a row."""

    layer: Layer
    count: Count


class Workload(Record):
    """The model and its training settings."""

    name: Name
    source: Text
    layer_runs: tuple[LayerRun, ...] = Field(min_length=1)
    parameters: Annotated[Figure, Field(ge=1)]  #: exact, tied matrices once, vocabulary not padded
    sequence_length: Batch
    global_batch: Batch  #: sequences per optimizer step
    hidden_size: Annotated[Figure, Field(ge=1)]
    #: Groups of query heads; as Megatron-LM's `num_query_groups`, a multiple of every tp.
    kv_heads: Annotated[Figure, Field(ge=1)]
    #: One tensor sent from stage to stage, per sequence.
    boundary_bytes: Annotated[Figure, Field(ge=1)]
    tied_embeddings: bool
    precision: Precision = "bf16"
    parameter_bytes: Width = 2  #: per parameter, also on the wire
    #: Per parameter of blocks, of copies that products read, and that are never sent or updated.
    copy_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    gradient_bytes: Width = 4  #: per parameter, also on the wire
    optimizer_bytes: Width = 12  #: Adam: fp32 master copy, two moments

    @model_validator(mode="after")
    def _check_extent(self) -> "Workload":
        if first_beyond((run.count for run in self.layer_runs), MOST_CHAIN) is not None:
            raise ValueError(f"more than {MOST_CHAIN} layers")
        return self

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The chain, one entry per layer."""
        return tuple(run.layer for run in self.layer_runs for _ in range(run.count))

    @property
    def largest_message_bytes(self) -> int:
        """Most that is sent from stage to stage, per sequence."""
        return self.boundary_bytes * max(run.layer.output_tensors for run in self.layer_runs)

    @property
    def forward_flops(self) -> int:
        """FLOPs of one forward pass of one sequence."""
        return sum(run.layer.forward_flops * run.count for run in self.layer_runs)

    @property
    def training_flops(self) -> int:
        """FLOPs of one forward and backward pass of one sequence; recomputation counts nothing."""
        return (1 + BACKWARD_PER_FORWARD) * self.forward_flops
