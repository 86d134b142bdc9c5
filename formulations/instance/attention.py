"""The attention of a transformer block, as parts: `parts` says what is counted."""

from formulations.instance.parts import Part, dropout_mask, memory_kernels
from formulations.instance.sizes import LatentAttentionSizes, TransformerSizes
from formulations.instance.workload import CORE_PRODUCTS

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
