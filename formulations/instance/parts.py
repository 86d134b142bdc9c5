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

from formulations.instance.sizes import LatentAttentionSizes, MoeSizes, TransformerSizes
from formulations.instance.workload import CORE_PRODUCTS, Layer

#: Kernels of the loss without fusion: cast, max, subtract, pick target, exp, sum, log.
LOSS_KERNELS = 7
TOKEN_ID_BYTES = 8


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


def dropout_mask(sizes: TransformerSizes, s: int) -> Part:
    """The mask of dropout on the residual stream."""
    size = s * sizes.hidden_size * sizes.dropout
    return Part(replicated_bytes=size, released_replicated_bytes=size, fixed_replicated_bytes=size)


ROTARY_KERNELS = 2  # queries, keys
FLASH_BYTES = 4  # per row and head, an fp32 number (Dao et al. 2022, algorithm 1)


def self_attention(sizes: TransformerSizes, s: int, flash: bool, keys: int) -> Part:
    """Self-attention with plain, grouped or multi-query heads, of every query to `keys` tokens.

    The scores' softmax may have a learned sink per head.
    """
    d = sizes.width_per_head
    q, kv = sizes.heads * d, sizes.num_kv_heads * d
    one_stream = Part(
        kernels=1,
        sharded_parameters=sizes.heads * sizes.attention_sinks,
        backward_all_reduces=1,
        replicated_bytes=2 * s * sizes.hidden_size,
        key_value_bytes=2 * s * 2 * kv,
    )
    return (
        _projections(sizes, s)
        + one_stream
        + memory_kernels(ROTARY_KERNELS * sizes.rotary_positions)
        + _rotated(sizes, s, q, kv)
        + _scores(sizes, s, d, d, flash, keys)
        + _output_projection(sizes, s, q)
    )


def cross_attention(sizes: TransformerSizes, s: int, flash: bool) -> Part:
    """Attention of the decoder to the encoder's output of the same length s.

    The encoder's output is booked in every decoder block, although the blocks of a stage share
    one copy: never below the truth. Backward, the gradients towards the decoder's own stream and
    towards the encoder's output are all-reduced separately.
    """
    d = sizes.width_per_head
    two_streams = Part(
        kernels=2, backward_all_reduces=2, replicated_bytes=2 * 2 * s * sizes.hidden_size
    )
    return (
        _projections(sizes, s)
        + two_streams
        + _scores(sizes, s, d, d, flash, keys=s)
        + _output_projection(sizes, s, sizes.heads * d)
    )


def latent_attention(
    sizes: TransformerSizes, latent: LatentAttentionSizes, s: int, flash: bool
) -> Part:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Queries and keys/values pass through a low rank with an RMS norm inside; the rotary part of
    the keys is one head for all. With `qkv_biases` only the down-projections have biases.
    Backward, the gradients of both ranks are all-reduced; they are booked as one of width h.
    """
    heads, query_rank = sizes.heads, latent.query_rank
    qk_dim = latent.nope_head_dim + latent.rope_head_dim
    keys = _low_rank(
        sizes,
        s,
        rank=latent.kv_rank,
        extra=latent.rope_head_dim,
        columns=heads * (latent.nope_head_dim + latent.value_head_dim),
        kept_columns=heads * (qk_dim + latent.value_head_dim),
    )
    if query_rank is None:
        columns = heads * qk_dim
        queries = _column_product(sizes.hidden_size, columns, columns, s)
    else:
        queries = _low_rank(
            sizes,
            s,
            rank=query_rank,
            extra=0,
            columns=heads * qk_dim,
            kept_columns=heads * qk_dim,
        )
    joins = 2  # rotary and other part of queries, of keys
    shared = Part(
        replicated_bytes=2 * s * sizes.hidden_size,
        kernels=ROTARY_KERNELS + joins,
        memory_kernels=ROTARY_KERNELS + joins,
        backward_all_reduces=1,
        key_value_bytes=2 * s * heads * (qk_dim + latent.value_head_dim),
    )
    return (
        shared
        + queries
        + keys
        + _scores(sizes, s, qk_dim, latent.value_head_dim, flash, keys=s)
        + _output_projection(sizes, s, heads * latent.value_head_dim)
    )


def _projections(sizes: TransformerSizes, s: int) -> Part:
    """Queries, keys and values of plain attention, by columns."""
    columns = (sizes.heads + 2 * sizes.num_kv_heads) * sizes.width_per_head
    return Part(
        sharded_parameters=(sizes.hidden_size + sizes.qkv_biases) * columns,
        flops=2 * s * sizes.hidden_size * columns,
        sharded_bytes=2 * s * columns,
    )


def _rotated(sizes: TransformerSizes, s: int, q: int, kv: int) -> Part:
    """Queries and keys as the scores take them, where that is not how the product gives them.

    Rotary positions make copies of both, and so do norms of each head by one weight, or of all
    heads by as many weights as they are wide; after both, the last copies alone are kept. What the
    product gave stays, as the values are a view of it (Megatron-LM, core/transformer/attention.py).
    """
    weights = 2 * sizes.width_per_head * sizes.qk_norms + (q + kv) * sizes.qk_norms_of_all_heads
    if not weights and not sizes.rotary_positions:
        return Part()
    size = 2 * s * (q + kv)
    return Part(
        replicated_parameters=weights,
        kernels=2 * (weights > 0),
        memory_kernels=2 * (weights > 0),
        sharded_bytes=size,
        released_sharded_bytes=0 if weights else size,
    )


def _scores(
    sizes: TransformerSizes, s: int, qk_dim: int, value_dim: int, flash: bool, keys: int
) -> Part:
    """Softmax of the scores times the values.

    Kept per head: softmax 2 s^2 and, with dropout, mask s^2 and result 2 s^2 (together the 5 a s^2
    of Korthikanti et al.); flash attention keeps one fp32 number per row (Dao et al. 2022), and
    leaves out the half of the scores that a causal mask hides, which model FLOPs count.
    Fused, it takes as long as if values were as wide as keys, or keys as values: with 192 and 128,
    kernels reach 0.77 to 0.85 of the rate of heads of 128 backward, forward 0.83 to 0.93 (B200 with
    128 heads, A100) or as much (B200 with fewer), where this says 0.83 (SimuMax v1.2).
    `keys`: the tokens whose scores are worked out for a query.
    """
    a = sizes.heads
    kept = FLASH_BYTES * s if flash else (5 if sizes.dropout else 2) * s * s
    fixed = FLASH_BYTES * s if flash else sizes.dropout * s * s
    kernels = 1 if flash else 3 + sizes.dropout
    flops = 2 * s * keys * a * (qk_dim + value_dim)
    fused = 2 * s * keys * a * 2 * max(qk_dim, value_dim)
    return Part(
        flops=flops,
        kernels=kernels,
        sharded_bytes=a * kept,
        unweighted_flops=flops,
        query_bytes=2 * s * a * (qk_dim + value_dim),
        released_sharded_bytes=a * kept,
        fixed_sharded_bytes=a * fixed,
        attention_flops=fused // 2 if sizes.causal and keys == s else fused,
        core_bytes=0 if flash else a * kept,
        flash_bytes=0 if flash else FLASH_BYTES * a * s,
        core_kernels=0 if flash else kernels,
        memory_kernels=0 if flash else kernels - CORE_PRODUCTS,
    )


def _output_projection(sizes: TransformerSizes, s: int, columns: int) -> Part:
    h = sizes.hidden_size
    product = Part(
        sharded_parameters=columns * h,
        replicated_parameters=h * sizes.output_bias,
        flops=2 * s * columns * h,
        kernels=2,  # product, dropout + residual add
        memory_kernels=1,
        forward_all_reduces=1,
        sharded_bytes=2 * s * columns,
    )
    return product + dropout_mask(sizes, s)


def _column_product(rows: int, columns: int, kept_columns: int, s: int) -> Part:
    return Part(
        sharded_parameters=rows * columns,
        flops=2 * s * rows * columns,
        kernels=1,
        sharded_bytes=2 * s * kept_columns,
    )


def _low_rank(
    sizes: TransformerSizes, s: int, *, rank: int, extra: int, columns: int, kept_columns: int
) -> Part:
    """Down-projection to rank + extra columns, norm of the rank, up-projection to `columns`.

    Kept: the norm's input and output; of the up-projection `kept_columns` per token.
    """
    down = (rank + extra) * (sizes.hidden_size + sizes.qkv_biases)
    replicated = Part(
        replicated_parameters=down + rank,
        flops=2 * s * sizes.hidden_size * (rank + extra),
        kernels=2,
        memory_kernels=1,
        replicated_bytes=2 * 2 * s * rank,
    )
    return replicated + _column_product(rank, columns, kept_columns, s)


def dense_ffn(sizes: TransformerSizes, s: int) -> Part:
    """The feed-forward network of a dense block."""
    h, width = sizes.hidden_size, sizes.dense_ffn_size
    first = 2 if sizes.gated_ffn else 1
    biases = Part(
        sharded_parameters=first * width * sizes.ffn_biases,
        replicated_parameters=h * sizes.ffn_biases,
    )
    traffic = Part(replicated_bytes=2 * s * h, forward_all_reduces=1, backward_all_reduces=1)
    products = _ffn_products(sizes, width, s) + memory_kernels(1)
    return products + biases + traffic + dropout_mask(sizes, s)


def moe_ffn(sizes: TransformerSizes, moe: MoeSizes, s: int) -> Part:
    """Router, routed experts (top-k per token) and shared experts; the shared have no biases.

    Tensor groups exchange tokens for routed experts, and once more for shared ones, whose products
    gather and reduce by themselves (Megatron-LM, moe/shared_experts.py). Kept besides the experts'
    inner tensors: the router's input and fp32 scores, and the copies of tokens in expert order,
    before and after the experts.
    Kernels: the router's product, softmax, top-k; probabilities and map of the chosen experts, each
    scattered over zeros, and the tokens per expert (Megatron-LM, moe_utils.py); permute and
    unpermute; grouped products, as many as one expert's; the residual add; and, with shared
    experts, theirs and one more add.
    """
    h, k = sizes.hidden_size, moe.experts_per_token
    inner = 3 if sizes.gated_ffn else 2
    expert = inner * h * moe.ffn_size
    split_biases = (inner - 1) * moe.ffn_size * moe.biases
    routing = Part(
        replicated_parameters=(h + moe.biases * (1 + h)) * moe.experts,
        sharded_parameters=(expert + split_biases) * moe.experts,
        flops=2 * s * (h * moe.experts + k * expert),
        expert_parameters=(expert + split_biases) * moe.experts,
        expert_flops=2 * s * k * expert,
        routed_bytes=2 * k * s * h,
        kernels=3 + 5 + 2 + 3 + 1,
        memory_kernels=2 + 5 + 2 + 1 + 1,
        forward_all_reduces=1,
        backward_all_reduces=1,
        expert_all_reduces=1,
        replicated_bytes=2 * s * h + 4 * s * moe.experts + k * (2 + 2) * s * h,
        sharded_bytes=k * inner * 2 * s * moe.ffn_size,
        unsplit_bytes=k * (2 + 2) * s * h,
    )
    if moe.shared_experts:
        routing += _ffn_products(sizes, moe.shared_experts * moe.ffn_size, s) + memory_kernels(1)
        routing += Part(forward_all_reduces=1, backward_all_reduces=1)
    return routing + dropout_mask(sizes, s)


def _ffn_products(sizes: TransformerSizes, width: int, s: int) -> Part:
    """The matrix products with the activation between; every inner tensor is kept."""
    tensors = 3 if sizes.gated_ffn else 2
    return Part(
        sharded_parameters=tensors * sizes.hidden_size * width,
        flops=2 * s * tensors * sizes.hidden_size * width,
        kernels=3,
        memory_kernels=1,
        sharded_bytes=2 * s * tensors * width,
    )
