"""The parts of a transformer block, each with its parameters, FLOPs, activations and kernels.

Everything is for one sequence of s tokens; h is the hidden size, q = heads * head_dim.

FLOPs: a matrix product costs 2 s per active parameter; scores and weighted sum cost 2 s^2 per
query and per value column (Narayanan et al. 2021, appendix: 24 s h^2 + 4 s^2 h for a GPT block).

Activations (Korthikanti et al. 2023, section 4.1, 2 bytes per element, 1 per dropout mask,
without sequence parallelism): what follows a column-parallel product is split over the tp ranks,
the rest is held by all of them. A GPT block keeps s h (10 + 24/t + 5 a s / (h t)) bytes (eq. 2).
With it the tp ranks split the rest too, in the sequence: inputs of norms and of column-parallel
products, and dropout masks, s h (34 + 5 a s / h) / t bytes (eq. 4); what a product needs whole is
gathered again in the backward pass, behind other work (section 4.2.2). Not split are the copies of
tokens in expert order, which belong to tokens of all ranks. Selective recomputation drops what
lies between the queries and the weighted sum, 5 a s^2 / t (section 5); flash attention keeps
nothing of it to begin with.

Tensor parallelism is Megatron-LM's: q, k, v and the first feed-forward matrix by columns, the
others by rows; norms, biases after a row-parallel product, the router and the down-projections of
latent attention are held whole by every rank.

Weight gradients (Qi et al., ICLR 2024, table 1) are for products with parameters alone: scores are
`unweighted_flops`. Of what is kept they need the inputs of these products, and as many bytes of
gradients as their outputs have; dropout masks and scores are released by the input gradients.

Other precisions: masks, the sums that flash attention keeps and logits have formats of their own
(`fixed_*`, all but logits released); all else is as wide as the elements.

Kernels: launches of one forward pass on one GPU with the fusions of Megatron-LM: q, k, v in one
product, biases inside the products, scale + mask + softmax, activation with its gate, and
dropout + residual add are one launch each. Communication kernels are not counted. Memory kernels
are those that neither multiply matrices nor are fused attention.

Context parallelism sends keys and values as the scores take them: of latent attention those of all
heads, as it is trained without absorbing its up-projections (Megatron-LM,
core/transformer/multi_latent_attention.py).
"""

from dataclasses import dataclass, replace
from operator import add
from typing import Self

from formulations.instance.sizes import TransformerSizes
from formulations.instance.workload import Layer


@dataclass(frozen=True)
class Part:
    """Costs of a piece of a layer for one sequence; the sum of parts is a part."""

    sharded_parameters: int = 0
    replicated_parameters: int = 0
    flops: int = 0
    kernels: int = 0
    forward_all_reduces: int = 0
    backward_all_reduces: int = 0
    sharded_bytes: int = 0
    replicated_bytes: int = 0
    unweighted_flops: int = 0
    released_sharded_bytes: int = 0
    released_replicated_bytes: int = 0
    fixed_sharded_bytes: int = 0
    fixed_replicated_bytes: int = 0
    attention_flops: int = 0
    unsplit_bytes: int = 0
    core_bytes: int = 0
    flash_bytes: int = 0
    core_kernels: int = 0
    expert_parameters: int = 0
    expert_flops: int = 0
    routed_bytes: int = 0
    expert_all_reduces: int = 0
    key_value_bytes: int = 0
    query_bytes: int = 0
    memory_kernels: int = 0

    def __add__(self, other: Self) -> "Part":
        """Costs of both."""
        return Part(*map(add, vars(self).values(), vars(other).values()))

    def widened(self, factor: int) -> "Part":
        """The part with elements of `factor` times 16 bit."""
        sharded, replicated = self.fixed_sharded_bytes, self.fixed_replicated_bytes
        more, released_sharded = factor - 1, min(sharded, self.released_sharded_bytes)
        released = min(replicated, self.released_replicated_bytes)
        return replace(
            self,
            sharded_bytes=factor * self.sharded_bytes - more * sharded,
            core_bytes=factor * self.core_bytes - more * min(sharded, self.core_bytes),
            unsplit_bytes=factor * self.unsplit_bytes,
            replicated_bytes=factor * self.replicated_bytes - more * replicated,
            released_sharded_bytes=factor * self.released_sharded_bytes - more * released_sharded,
            released_replicated_bytes=factor * self.released_replicated_bytes - more * released,
            routed_bytes=factor * self.routed_bytes,
            key_value_bytes=factor * self.key_value_bytes,
            query_bytes=factor * self.query_bytes,
        )

    def layer(
        self,
        kind: str,
        *,
        is_block: bool,
        input_bytes: int,
        vocabulary: tuple[int, int] = (0, 0),
        tied_copy: bool = False,
    ) -> Layer:
        """A layer of these costs and a vocabulary matrix of so many rows and columns."""
        alike = {name: own for name, own in vars(self).items() if name in Layer.model_fields}
        return Layer(
            kind=kind,
            is_block=is_block,
            vocabulary_rows=vocabulary[0],
            vocabulary_columns=vocabulary[1],
            tied_copy=tied_copy,
            forward_flops=self.flops,
            replicated_activation_bytes=self.replicated_bytes,
            sharded_activation_bytes=self.sharded_bytes,
            input_bytes=input_bytes,
            **alike,
        )


def memory_kernels(count: int) -> Part:
    """Launches of kernels that multiply no matrices."""
    return Part(kernels=count, memory_kernels=count)


def norm(sizes: TransformerSizes, s: int) -> Part:
    """A norm over the residual stream; its input is kept."""
    h = sizes.hidden_size
    parameters = 2 * h if sizes.norm == "layernorm" else h
    return Part(replicated_parameters=parameters, replicated_bytes=2 * s * h) + memory_kernels(1)


def block_norms(sizes: TransformerSizes, s: int) -> Part:
    """One norm for attention or feed-forward, or one before and one behind it."""
    return norm(sizes, s) + norm(sizes, s) if sizes.branch_norms else norm(sizes, s)


def dropout_mask(sizes: TransformerSizes, s: int) -> Part:
    """The mask of dropout on the residual stream."""
    size = s * sizes.hidden_size * sizes.dropout
    return Part(replicated_bytes=size, released_replicated_bytes=size, fixed_replicated_bytes=size)
