"""The chain of layers to train, with what each costs in parameters, FLOPs and activations.

Figures are per sequence and independent of degrees; `formulations.costs` turns them into
times and bytes per GPU. FLOPs: Cheng et al. 2024 and Narayanan et al. 2021 (a matrix product of
m x k by k x n counts 2mkn). Activations: Korthikanti et al. 2023, section 4, itemised.

Precisions, and what training in them keeps and sends. fp16, bf16: mixed precision with an fp32
master copy (Micikevicius et al., ICLR 2018). fp32, tf32: all is kept in 32 bit, so Adam has its two
moments and no copy; tf32 differs in the products. fp8: the blocks' products run in 8 bit
(Micikevicius et al. 2022, arXiv 2209.05433); Transformer Engine keeps parameters, activations and
messages in 16 bit, and per parameter one 8-bit copy for each of the two ways in which products read
it, over all micro-batches of a step. Attention and head stay in 16 bit. fp4: the same in 4 bit
(NVFP4, NVIDIA 2025, arXiv 2509.25149), two copies of half a byte; scales are left out.
"""

from functools import cached_property
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field, model_validator

from formulations.errors import Fault
from formulations.instance.record import (
    MOST_CHAIN,
    Batch,
    Count,
    Figure,
    Name,
    Record,
    Text,
    first_beyond,
)
from formulations.instance.sizes import TransformerSizes

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: In which the products of blocks alone run; all else is in 16 bit.
NARROW: tuple[Precision, ...] = ("fp8", "fp4")

#: In which fused attention has kernels (Dao et al. 2022; Dao 2023; narrow ones keep it in 16 bit).
FLASH_PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", *NARROW)

MASTER_BYTES = 4  # per parameter, of the optimizer's fp32 copy


class Formats(NamedTuple):
    """Bytes per parameter and per element of activations and messages."""

    parameter_bytes: int
    copy_bytes: int  #: of parameters, for products; never sent, never updated
    element_bytes: int
    master_bytes: int
    weight_bytes: float  #: of a parameter as the products of blocks read it


_WHOLE = Formats(4, 0, 4, 0, 4)
_MIXED = Formats(2, 0, 2, MASTER_BYTES, 2)

FORMATS: dict[Precision, Formats] = {
    "fp32": _WHOLE,
    "tf32": _WHOLE,
    "fp16": _MIXED,
    "bf16": _MIXED,
    "fp8": _MIXED._replace(copy_bytes=2, weight_bytes=1),
    "fp4": _MIXED._replace(copy_bytes=1, weight_bytes=0.5),
}

VOCABULARY_MULTIPLE = 128  # Megatron-LM pads the vocabulary to a multiple of 128 * tp
BACKWARD_PER_FORWARD = 2  # FLOPs (Narayanan et al. 2021, appendix)

Recompute = Literal["none", "selective", "per_op", "full"]
#: GPUs that split every expert: each has whole ones, or all of a tensor group do.
ExpertSplit = Literal[1, "tp"]
OptimizerState = Literal["fp32", "bf16", "8bit"]
#: Parameters that share a scale in 8-bit Adam (Dettmers et al., ICLR 2022, section 2.1).
QUANTIZED_BLOCK = 2048
#: Bytes per parameter, and per block of them: Adam keeps an fp32 master copy and two moments; these
#: in fp32 (Rajbhandari et al. 2020, section 3.1), in bf16 (Megatron-LM's precision-aware
#: optimizer), or in 8 bit with an fp32 scale per block and moment (Dettmers et al., ICLR 2022).
#: Without the copy where parameters are in 32 bit: `formulations.instance.workload`.
OPTIMIZER_BYTES: dict[OptimizerState, tuple[int, int]] = {
    "fp32": (4 + 4 + 4, 0),
    "bf16": (4 + 2 + 2, 0),
    "8bit": (4 + 1 + 1, 2 * 4),
}
Width = Annotated[int, Field(ge=1, le=64)]  # bytes per parameter


def padded_vocabulary(vocabulary_size: int, tp: int) -> int:
    """Rows of the vocabulary matrix as Megatron-LM stores it on tp ranks."""
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-vocabulary_size // multiple) * multiple


#: Of attention that is not fused: scores, weighted sum.
CORE_PRODUCTS = 2


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
    #: What fused attention, where it is used, works out in place of `unweighted_flops`.
    attention_flops: Figure = 0
    kernels: Figure  #: kernel launches of one forward pass on one GPU
    forward_all_reduces: Figure = 0  #: over the tp ranks, 2*s*h bytes each
    backward_all_reduces: Figure = 0
    replicated_activation_bytes: Figure  #: kept for backward by every tp rank
    sharded_activation_bytes: Figure  #: kept for backward, split over the tp ranks
    unsplit_bytes: Figure = 0  #: of the replicated ones, those whole under sequence parallelism too
    core_bytes: Figure = 0  #: of the sharded ones, those of scores, softmax and dropout
    flash_bytes: Figure = 0  #: what flash attention would keep in their place
    core_kernels: Figure = 0  #: of the kernels, those from the scores to the weighted sum
    #: Of a block that can be recomputed per operator, with flash attention: kept beside its input,
    #: whole on every tp rank or split; FLOPs of the products and launches that are repeated.
    per_op_whole_bytes: Figure = 0
    per_op_sharded_bytes: Figure = 0
    per_op_flops: Figure = 0
    per_op_kernels: Figure = 0
    memory_kernels: Figure = 0  #: of the kernels, those bound by memory: no products, no attention
    #: Of the bytes kept for backward, those that no weight gradient needs.
    released_replicated_bytes: Figure = 0
    released_sharded_bytes: Figure = 0
    expert_parameters: Figure = 0  #: of the sharded ones, those of routed experts, all together
    expert_flops: Figure = 0  #: of the forward ones, those of the experts that tokens visit
    routed_bytes: Figure = 0  #: copies of tokens on their way to these experts, or back
    expert_all_reduces: Figure = 0  #: of those over the tp ranks, in each pass, for them alone
    key_value_bytes: Figure = 0  #: of keys and values as attention's scores take them
    query_bytes: Figure = 0  #: of queries and of the weighted sums of the values
    input_bytes: Figure  #: all that full recomputation keeps
    #: Tensors of `Workload.boundary_bytes` that cross a boundary right after the layer.
    output_tensors: int = Field(default=1, ge=1, le=2)

    @property
    def parameters(self) -> int:
        """Parameters trained with the layer, unpadded; a tied copy counts nothing."""
        matrix = 0 if self.tied_copy else self.vocabulary_rows * self.vocabulary_columns
        return self.sharded_parameters + self.replicated_parameters + matrix

    def parameters_per_gpu(self, tp: int, pp: int) -> int:
        """Parameters that one GPU of a group of `tp` holds, where experts lie as all else does."""
        return self.dense_per_gpu(tp, pp) + self.experts_per_gpu(tp, 1)

    def dense_per_gpu(self, tp: int, pp: int) -> int:
        """Of these, those that no expert has."""
        vocabulary = padded_vocabulary(self.vocabulary_rows, tp) // tp * self.vocabulary_columns
        if self.tied_copy and pp == 1:
            vocabulary = 0
        sharded = -(-self.sharded_parameters // tp) - self.experts_per_gpu(tp, 1)
        return sharded + self.replicated_parameters + vocabulary

    def experts_per_gpu(self, etp: int, ep: int) -> int:
        """Those of routed experts, of which ep GPUs hold as many each, split over etp."""
        return -(-self.expert_parameters // (etp * ep))

    @property
    def copied_bytes(self) -> int:
        """Of what is kept for backward, the copies of tokens before and after the experts."""
        return 2 * self.routed_bytes

    def with_whole_experts(self) -> "Layer":
        """The layer where each tp rank has experts whole, for its own part of the sequence."""
        return self.but(
            unsplit_bytes=max(0, self.unsplit_bytes - self.copied_bytes),
            forward_all_reduces=self.forward_all_reduces - self.expert_all_reduces,
            backward_all_reduces=self.backward_all_reduces - self.expert_all_reduces,
        )

    def activation_bytes(
        self, tp: int, sequence_parallel: bool = False, *, for_weights: bool = False
    ) -> int:
        """Bytes that one GPU keeps for the backward pass of one sequence, no recomputation.

        for_weights: from its input to its weight gradients alone. Sequence parallelism splits what
        all ranks held (Korthikanti et al. 2023, eq. 4).
        """
        replicated, sharded = self.replicated_activation_bytes, self.sharded_activation_bytes
        if for_weights:
            replicated -= self.released_replicated_bytes
            sharded -= self.released_sharded_bytes
        unsplit = self.unsplit_bytes if sequence_parallel else replicated
        return unsplit + -(-(sharded + replicated - unsplit) // tp)

    @property
    def core_memory_kernels(self) -> int:
        """Of the core's kernels, those that are no products."""
        return min(self.memory_kernels, max(0, self.core_kernels - CORE_PRODUCTS))

    def with_flash(self) -> "Layer":
        """The layer where attention is one kernel that keeps no scores; windows spare nothing."""
        if not self.core_kernels:
            return self
        spared = self.core_bytes - self.flash_bytes
        return self.but(
            kernels=self.kernels - self.core_kernels + 1,
            memory_kernels=self.memory_kernels - self.core_memory_kernels,
            sharded_activation_bytes=self.sharded_activation_bytes - spared,
            released_sharded_bytes=self.released_sharded_bytes - spared,
            core_bytes=0,
            flash_bytes=0,
            core_kernels=0,
        )

    def recomputed_bytes(
        self, recompute: Recompute, tp: int, sequence_parallel: bool = False
    ) -> tuple[int, int]:
        """Bytes of one sequence on one GPU: kept for backward, and besides while recomputing.

        Full recomputation keeps the input of a block, selective drops its attention's core
        (Korthikanti et al. 2023, section 5), per operator keeps results that are dear to repeat
        (torchtitan, SelectiveAC); other layers are not recomputed.
        """
        kept = self.activation_bytes(tp, sequence_parallel)
        if recompute == "none" or not self.is_block:
            return kept, 0
        input_bytes = -(-self.input_bytes // tp) if sequence_parallel else self.input_bytes
        if recompute == "full":
            return input_bytes, kept
        if recompute == "per_op":
            results = self.per_op_whole_bytes + -(-self.per_op_sharded_bytes // tp)
            return input_bytes + results, max(0, kept - results)
        core = self.core_bytes // tp
        return kept - core, core

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
    sizes: TransformerSizes | None = None  #: that the layers were made from; None: were counted
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
    experts: Figure = 0  #: routed experts of each block that has any; 0: the model has none
    expert_biases: bool = False  #: of those experts
    mtp_layers: int = Field(0, ge=0, le=100)  #: modules of multi-token prediction, in the head
    precision: Precision = "bf16"
    parameter_bytes: Width = 2  #: per parameter, also on the wire
    #: Per parameter of blocks, of copies that products read, and that are never sent or updated.
    copy_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    gradient_bytes: Width = 4  #: per parameter, also on the wire
    optimizer_bytes: Width = 12  #: per parameter, see `OPTIMIZER_BYTES`
    flash_attention: bool = False
    fused_cross_entropy: bool = False  #: logits stay in 16 bit, their gradients in their place
    optimizer_block_bytes: int = Field(default=0, ge=0, le=64)  #: per `QUANTIZED_BLOCK` of them

    @model_validator(mode="after")
    def _check_extent(self) -> "Workload":
        if first_beyond((run.count for run in self.layer_runs), MOST_CHAIN) is not None:
            raise ValueError(f"more than {MOST_CHAIN} layers")
        return self

    @property
    def num_blocks(self) -> int:
        """Blocks of the chain."""
        return sum(run.count for run in self.layer_runs if run.layer.is_block)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The chain, one entry per layer."""
        return tuple(run.layer for run in self.layer_runs for _ in range(run.count))

    def with_flash(self) -> "Workload":
        """The workload with flash attention."""
        runs = [run.but(layer=run.layer.with_flash()) for run in self.layer_runs]
        return self.but(layer_runs=tuple(runs), flash_attention=True)

    @property
    def logits_bytes(self) -> int:
        """Of one sequence, as the product gives them; those of multi-token prediction by turns."""
        rows = self.layer_runs[-1].layer.vocabulary_rows
        return FORMATS[self.precision].element_bytes * self.sequence_length * rows

    @cached_property
    def whole_experts(self) -> "Workload":
        """The workload where no expert is split within a tensor group (etp 1)."""
        runs = (run.but(layer=run.layer.with_whole_experts()) for run in self.layer_runs)
        return self.but(layer_runs=tuple(runs))

    @property
    def optimizer_state(self) -> OptimizerState | None:
        """Format of Adam's moments; None where it is none of those known."""
        master_bytes = FORMATS[self.precision].master_bytes
        sizes = self.optimizer_bytes + MASTER_BYTES - master_bytes, self.optimizer_block_bytes
        return next((name for name, size in OPTIMIZER_BYTES.items() if size == sizes), None)

    def state_bytes(self, parameters: int) -> int:
        """Optimizer states of so many parameters on one GPU."""
        blocks = -(-parameters // QUANTIZED_BLOCK)
        return self.optimizer_bytes * parameters + self.optimizer_block_bytes * blocks

    def per_op_fault(self) -> Fault | None:
        """Why blocks cannot be recomputed per operator, and what is allowed; None where they can.

        Known is what torchtitan keeps of dense blocks of plain attention, where that is fused.
        """
        if not self.flash_attention:
            allowed = "none, selective or full, or workload.flash_attention: true"
            return Fault("per_op, without flash attention in all plans", allowed)
        if all(run.layer.per_op_flops for run in self.layer_runs if run.layer.is_block):
            return None
        return Fault("per_op, of blocks that are not dense with plain attention", "none or full")

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
