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

from collections import Counter
from typing import Any

from formulations.instance.sizes import LatentAttentionSizes, MoeSizes, TransformerSizes
from formulations.instance.workload import CORE_PRODUCTS, Layer

TOKEN_ID_BYTES = 8
#: Without fusion of the loss: kernels that cast, max, subtract, pick the target, exp, sum, log, and
#: bytes of the logits kept (Korthikanti et al. 2023, section 4.3).
LOSS_KERNELS, LOGIT_BYTES = 7, 4

#: Costs of a piece of a layer for one sequence, by the names of `Layer`; those that are not there
#: are 0. The sum of parts is a part. `fixed_sharded_bytes`, `fixed_replicated_bytes` and
#: `fixed_input_bytes` are those of its activations that are as wide in every precision.
Part = Counter[str]

_SHARDED = "sharded_activation_bytes", "released_sharded_bytes", "core_bytes"
_REPLICATED = "replicated_activation_bytes", "released_replicated_bytes"
#: Of bytes, which are as wide as elements, those that are not.
_FIXED = {
    **dict.fromkeys(_SHARDED, "fixed_sharded_bytes"),
    **dict.fromkeys(_REPLICATED, "fixed_replicated_bytes"),
    **{"input_bytes": "fixed_input_bytes", "flash_bytes": "flash_bytes"},
}


def layer_of(part: Part, kind: str, factor: int) -> Layer:
    """The layer of a part, with elements of `factor` times 16 bit."""
    fields: dict[str, Any] = {name: part[name] for name in Layer.model_fields}
    for name in filter(lambda name: name.endswith("_bytes"), fields):
        unchanged = min(part[name], part[_FIXED.get(name, "")])
        fields[name] = factor * (part[name] - unchanged) + unchanged
    fields |= {"kind": kind, "is_block": kind not in ("embedding", "head")}
    return Layer(**fields | {"tied_copy": part["tied_copy"] > 0})


def memory_kernels(count: int) -> Part:
    """Launches of kernels that multiply no matrices."""
    return Part(kernels=count, memory_kernels=count)


def dropout_masks(size: int) -> Part:
    """Masks of dropout on the residual stream, of so many elements."""
    kinds = ("replicated_activation_bytes", "released_replicated_bytes", "fixed_replicated_bytes")
    return Part(dict.fromkeys(kinds, size))


def lookup(s: int, h: int, dropout: bool, streams: int = 1) -> Part:
    """Lookup of the tokens of each stream in a vocabulary that is split; dropout."""
    masks, ids_bytes = streams * s * h * dropout, TOKEN_ID_BYTES * s * streams
    return Part(
        forward_all_reduces=streams,
        replicated_activation_bytes=masks,
        fixed_replicated_bytes=masks,
        input_bytes=ids_bytes,
        fixed_input_bytes=ids_bytes,
        output_tensors=1,
    ) + memory_kernels(streams * (1 + dropout))


def projection(s: int, h: int, v: int, fused: bool = False) -> Part:
    """Product with the vocabulary matrix, and loss; kept are its input, and logits in fp32.

    fused: the loss is one kernel, which keeps logits as the product gives them.
    """
    return Part(
        forward_flops=2 * s * h * v,
        kernels=1,
        backward_all_reduces=1,
        replicated_activation_bytes=2 * s * h,
        sharded_activation_bytes=(2 if fused else LOGIT_BYTES) * s * v,
        fixed_sharded_bytes=0 if fused else LOGIT_BYTES * s * v,
    ) + memory_kernels(1 if fused else LOSS_KERNELS)


def product(rows: int, columns: int, s: int, *, kept: int | None = None, biases: int = 0) -> Part:
    """A product with a matrix that is split over the tp ranks, and so many biases with it.

    kept: columns per token that are kept of what is split; those of the matrix unless given.
    """
    return Part(
        sharded_parameters=rows * columns + biases,
        forward_flops=2 * s * rows * columns,
        kernels=1,
        sharded_activation_bytes=2 * s * (columns if kept is None else kept),
    )


ROTARY_KERNELS = 2  # queries, keys
FLASH_BYTES = 4  # per row and head, an fp32 number (Dao et al. 2022, algorithm 1)


def self_attention(sizes: TransformerSizes, s: int, flash: bool, keys: int) -> Part:
    """Self-attention of every query to `keys` tokens: plain, grouped or multi-query heads.

    The scores' softmax may have a learned sink per head.
    """
    h, d = sizes.hidden_size, sizes.width_per_head
    q, kv = sizes.heads * d, sizes.num_kv_heads * d
    attention = _plain_attention(sizes, s, flash, keys) + Part(
        sharded_parameters=sizes.heads * sizes.attention_sinks,
        backward_all_reduces=1,
        replicated_activation_bytes=2 * s * h,
        key_value_bytes=2 * s * 2 * kv,
    )
    # Queries and keys as the scores take them, where that is not how the product gives them.
    # Rotary positions make copies of both, and so do norms of each head by one weight, or of all
    # heads by as many weights as they are wide; after both, the last copies alone are kept. What
    # the product gave stays, as values are a view of it (Megatron-LM, core/transformer/attention).
    weights = 2 * d * sizes.qk_norms + (q + kv) * sizes.qk_norms_of_all_heads
    if weights or sizes.rotary_positions:
        copies = 2 * s * (q + kv)
        attention += memory_kernels(2 * (weights > 0) + ROTARY_KERNELS * sizes.rotary_positions)
        attention += Part(
            replicated_parameters=weights,
            sharded_activation_bytes=copies,
            released_sharded_bytes=0 if weights else copies,
        )
    return attention


def cross_attention(sizes: TransformerSizes, s: int, flash: bool) -> Part:
    """Attention of the decoder to the encoder's output of the same length s.

    The encoder's output is booked in every decoder block, although the blocks of a stage share
    one copy: never below the truth. Backward, the gradients towards the decoder's own stream and
    towards the encoder's output are all-reduced separately.
    """
    return _plain_attention(sizes, s, flash, keys=s) + Part(
        kernels=1,  # queries apart from keys and values
        backward_all_reduces=2,
        replicated_activation_bytes=2 * 2 * s * sizes.hidden_size,
    )


def latent_attention(
    sizes: TransformerSizes, latent: LatentAttentionSizes, s: int, flash: bool
) -> Part:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Queries and keys/values pass through a low rank with an RMS norm inside; the rotary part of
    the keys is one head for all. With `qkv_biases` only the down-projections have biases.
    Backward, the gradients of both ranks are all-reduced; they are booked as one of width h.
    """
    h, heads, value_dim = sizes.hidden_size, sizes.heads, latent.value_head_dim
    qk_dim = latent.nope_head_dim + latent.rope_head_dim

    def low_rank(rank: int, rotary: int, columns: int, kept: int) -> Part:
        """Product to the rank and a rotary part, norm of the rank, product to `columns`."""
        down = Part(
            replicated_parameters=(rank + rotary) * (h + sizes.qkv_biases) + rank,
            forward_flops=2 * s * h * (rank + rotary),
            kernels=1,
            replicated_activation_bytes=2 * 2 * s * rank,  # input and output of the norm
        )
        return down + memory_kernels(1) + product(rank, columns, s, kept=kept)

    attention = low_rank(
        latent.kv_rank,
        latent.rope_head_dim,
        columns=heads * (latent.nope_head_dim + value_dim),
        kept=heads * (qk_dim + value_dim),
    )
    if latent.query_rank is None:
        attention += product(h, heads * qk_dim, s)
    else:
        attention += low_rank(latent.query_rank, 0, columns=heads * qk_dim, kept=heads * qk_dim)
    joins = 2  # rotary and other part of queries, of keys
    attention += memory_kernels(ROTARY_KERNELS + joins) + Part(
        replicated_activation_bytes=2 * s * h,
        backward_all_reduces=1,
        key_value_bytes=2 * s * heads * (qk_dim + value_dim),
    )
    attention += _attention_scores(sizes, s, qk_dim, value_dim, flash, keys=s)
    return attention + _output_projection(sizes, s, heads * value_dim)


def _plain_attention(sizes: TransformerSizes, s: int, flash: bool, keys: int) -> Part:
    """Queries, keys and values, by columns; scores; the product behind them."""
    d = sizes.width_per_head
    columns = (sizes.heads + 2 * sizes.num_kv_heads) * d
    attention = product(sizes.hidden_size, columns, s, biases=columns * sizes.qkv_biases)
    attention += _attention_scores(sizes, s, d, d, flash, keys)
    return attention + _output_projection(sizes, s, sizes.heads * d)


def scores(heads: int, columns: int, s: int, keys: int, flash: bool, dropout: bool) -> Part:
    """Softmax of the scores times the values, in heads of so many query and value columns in all.

    Kept per head: softmax 2 s^2 and, with dropout, mask s^2 and result 2 s^2 (together the 5 a s^2
    of Korthikanti et al.); flash attention keeps one fp32 number per row (Dao et al. 2022).
    `keys`: the tokens whose scores are worked out for a query.
    """
    kept = FLASH_BYTES * s if flash else (5 if dropout else 2) * s * s
    kernels = 1 if flash else 3 + dropout
    flops = 2 * s * keys * columns
    part = Part(
        forward_flops=flops,
        unweighted_flops=flops,
        kernels=kernels,
        query_bytes=2 * s * columns,
        sharded_activation_bytes=heads * kept,
        released_sharded_bytes=heads * kept,
        fixed_sharded_bytes=heads * (FLASH_BYTES * s if flash else dropout * s * s),
    )
    if not flash:  # what flash attention would keep and launch in its place: `Layer.with_flash`
        part += Part(
            core_bytes=heads * kept,
            flash_bytes=FLASH_BYTES * heads * s,
            core_kernels=kernels,
            memory_kernels=kernels - CORE_PRODUCTS,
        )
    return part


def _attention_scores(
    sizes: TransformerSizes, s: int, qk_dim: int, value_dim: int, flash: bool, keys: int
) -> Part:
    """Scores, and what fused attention works out of them.

    It leaves out the half of the scores that a causal mask hides, which model FLOPs count, and
    takes as long as if values were as wide as keys, or keys as values: with 192 and 128, kernels
    reach 0.77 to 0.85 of the rate of heads of 128 backward, forward 0.83 to 0.93 (B200 with 128
    heads, A100) or as much (B200 with fewer), where this says 0.83 (SimuMax v1.2).
    """
    fused = 2 * s * keys * sizes.heads * 2 * max(qk_dim, value_dim)
    halved = sizes.causal and keys == s
    columns = sizes.heads * (qk_dim + value_dim)
    part = scores(sizes.heads, columns, s, keys, flash, sizes.dropout)
    return part + Part(attention_flops=fused // 2 if halved else fused)


def _output_projection(sizes: TransformerSizes, s: int, columns: int) -> Part:
    """Product by rows, then dropout and residual add in one kernel."""
    h = sizes.hidden_size
    part = product(columns, h, s, kept=columns) + memory_kernels(1)
    part += Part(replicated_parameters=h * sizes.output_bias, forward_all_reduces=1)
    return part + dropout_masks(s * h * sizes.dropout)


def dense_ffn(sizes: TransformerSizes, s: int) -> Part:
    """The feed-forward network of a dense block."""
    h, width = sizes.hidden_size, sizes.dense_ffn_size
    first = 2 if sizes.gated_ffn else 1
    traffic = Part(
        sharded_parameters=first * width * sizes.ffn_biases,
        replicated_parameters=h * sizes.ffn_biases,
        replicated_activation_bytes=2 * s * h,
        forward_all_reduces=1,
        backward_all_reduces=1,
    )
    masks = dropout_masks(s * h * sizes.dropout)
    return _ffn_products(sizes, width, s) + memory_kernels(1) + traffic + masks


def per_op(sizes: TransformerSizes, s: int) -> Part:
    """What recomputation per operator keeps and repeats of a dense block of plain attention.

    torchtitan 0.3 (`SelectiveAC`) keeps what attention gives, its sums included, and every second
    product: of queries, keys, values, output and feed-forward the first, the third and so on. The
    down-projection of a gated one is kept as it comes, before it is summed over the tp ranks.
    """
    h, d, width = sizes.hidden_size, sizes.width_per_head, sizes.dense_ffn_size
    q, kv = sizes.heads * d, sizes.num_kv_heads * d
    return Part(
        per_op_whole_bytes=2 * s * h * sizes.gated_ffn,
        per_op_sharded_bytes=2 * s * (2 * q + kv + width) + FLASH_BYTES * s * sizes.heads,
        per_op_flops=2 * s * h * (kv + q + width),  # keys, output, and up or down
        per_op_kernels=3,
    )


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
    copies = k * (2 + 2) * s * h
    routing = Part(
        replicated_parameters=(h + moe.biases * (1 + h)) * moe.experts,
        sharded_parameters=(expert + split_biases) * moe.experts,
        forward_flops=2 * s * (h * moe.experts + k * expert),
        expert_parameters=(expert + split_biases) * moe.experts,
        expert_flops=2 * s * k * expert,
        routed_bytes=2 * k * s * h,
        kernels=3 + 5 + 2 + 3 + 1,
        memory_kernels=2 + 5 + 2 + 1 + 1,
        forward_all_reduces=1,
        backward_all_reduces=1,
        expert_all_reduces=1,
        replicated_activation_bytes=2 * s * h + 4 * s * moe.experts + copies,
        sharded_activation_bytes=k * inner * 2 * s * moe.ffn_size,
        unsplit_bytes=copies,
    )
    if moe.shared_experts:
        routing += _ffn_products(sizes, moe.shared_experts * moe.ffn_size, s) + memory_kernels(1)
        routing += Part(forward_all_reduces=1, backward_all_reduces=1)
    return routing + dropout_masks(s * h * sizes.dropout)


def _ffn_products(sizes: TransformerSizes, width: int, s: int) -> Part:
    """The matrix products with the activation between; every inner tensor is kept."""
    tensors = 3 if sizes.gated_ffn else 2
    products = product(sizes.hidden_size, tensors * width, s)
    return products + Part(kernels=1) + memory_kernels(1)  # two products, activation with its gate
