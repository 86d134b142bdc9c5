"""The ends of the chain of layers, each from its parts: embedding and head.

The head of a model that is trained with multi-token prediction (DeepSeek-AI 2024, arXiv
2412.19437, section 2.2) holds those modules too, as Megatron-LM puts them on the last stage. They
look up the embedding's matrix again, so the head holds a copy of it where it lies on another
stage, and its gradient is all-reduced as that of tied embeddings.
"""

from formulations.instance.parts import Part, norm
from formulations.instance.sizes import TransformerSizes
from formulations.instance.workload import Layer

#: Kernels of the loss without fusion: cast, max, subtract, pick target, exp, sum, log.
LOSS_KERNELS = 7
#: Kernels of BERT's masked-token transform: matrix product with bias, activation, norm.
TRANSFORM_KERNELS = 3
TOKEN_ID_BYTES = 8


def embedding_layer(sizes: TransformerSizes, s: int, factor: int) -> Layer:
    """Lookups of tokens, positions and token types, their sums, norm and dropout.

    Kept: dropout masks and the norm's input. The vocabulary-parallel lookup needs one all-reduce
    per token stream. Kernels: lookup per table, an add per further table, norm, dropout.
    """
    h, streams = sizes.hidden_size, sizes.num_streams
    tables = 1 + (sizes.learned_positions is not None) + (sizes.token_types > 0)
    rows = (sizes.learned_positions or 0) + sizes.token_types
    biases = streams * (sizes.relative_position_buckets or 0) * sizes.heads
    part = Part(
        replicated_parameters=rows * h + biases,
        kernels=streams * (2 * tables - 1 + sizes.dropout),
        memory_kernels=streams * (2 * tables - 1 + sizes.dropout),
        forward_all_reduces=streams,
        replicated_bytes=streams * s * h * sizes.dropout,
        fixed_replicated_bytes=streams * s * h * sizes.dropout,
    )
    if sizes.embedding_norm:
        part += norm(sizes, s)
    ids_bytes = streams * TOKEN_ID_BYTES * s
    matrix = (sizes.vocabulary_size, h)
    part = part.widened(factor)
    return part.layer("embedding", is_block=False, input_bytes=ids_bytes, vocabulary=matrix)


def head_layer(sizes: TransformerSizes, s: int, block: Part, factor: int) -> Layer:
    """Final norms, projection to the vocabulary and loss.

    Kept (Korthikanti et al. 2023, section 4.3): 2 s h per norm input and for the projection's
    input, logits in fp32. FLOPs are the projection's, 2 s h V; BERT's transform (h / V of that)
    and the layers over its first token are left out.
    """
    h, v = sizes.hidden_size, sizes.vocabulary_size
    part = _projection(sizes, s) + Part(replicated_parameters=_pooler_parameters(sizes))
    if sizes.masked_lm_head:
        transform = _pretraining_parameters(sizes) - v
        part += Part(
            sharded_parameters=v,
            replicated_parameters=transform,
            kernels=TRANSFORM_KERNELS,
            memory_kernels=TRANSFORM_KERNELS - 1,
            replicated_bytes=3 * 2 * s * h,
        )
    for _ in range(sizes.mtp_layers):
        part += _prediction_module(sizes, s, block)
    if sizes.mtp_layers and not sizes.tied_embeddings:
        part += Part(sharded_parameters=v * h)  # the layer's vocabulary matrix is the copy
    has_copy = sizes.tied_embeddings or sizes.mtp_layers > 0
    return part.widened(factor).layer(
        "head",
        is_block=False,
        input_bytes=2 * factor * s * h,
        vocabulary=(v, h),
        tied_copy=has_copy,
    )


def training_only(sizes: TransformerSizes, block: Part) -> int:
    """Parameters of the head that are trained, but are not part of the published model."""
    modules = _prediction_module(sizes, 1, block)
    prediction = sizes.mtp_layers * (modules.sharded_parameters + modules.replicated_parameters)
    if not sizes.masked_lm_head or sizes.published_head:
        return prediction
    matrix = 0 if sizes.tied_embeddings else sizes.vocabulary_size * sizes.hidden_size
    return _pretraining_parameters(sizes) + matrix + prediction


def _projection(sizes: TransformerSizes, s: int) -> Part:
    """Final norms, product with the vocabulary matrix, loss."""
    part = Part(
        flops=2 * s * sizes.hidden_size * sizes.vocabulary_size,
        kernels=1 + LOSS_KERNELS,
        memory_kernels=LOSS_KERNELS,
        backward_all_reduces=1,
        replicated_bytes=2 * s * sizes.hidden_size,
        sharded_bytes=4 * s * sizes.vocabulary_size,
        fixed_sharded_bytes=4 * s * sizes.vocabulary_size,
    )
    for _ in range(sizes.num_streams * sizes.final_norm):
        part += norm(sizes, s)
    return part


def _prediction_module(sizes: TransformerSizes, s: int, block: Part) -> Part:
    """One module of multi-token prediction: its block, and what stands around it.

    Norms of the block stack's output and of the next token's embedding, a 2h x h product of both,
    split by columns and gathered, the block, and the projection of the head with its own norm.
    Kernels: lookup, concatenation, product.
    """
    h = sizes.hidden_size
    joined = Part(
        sharded_parameters=2 * h * h,
        flops=2 * s * 2 * h * h,
        kernels=3,
        memory_kernels=2,
        forward_all_reduces=2,
        backward_all_reduces=1,
        replicated_bytes=2 * 2 * s * h,
    )
    return norm(sizes, s) + norm(sizes, s) + joined + block + _projection(sizes, s)


def _pooler_parameters(sizes: TransformerSizes) -> int:
    h = sizes.hidden_size
    return (h * h + h) * sizes.pooler


def _pretraining_parameters(sizes: TransformerSizes) -> int:
    """Parameters that BERT's pre-training adds to the base model."""
    if not sizes.masked_lm_head:
        return 0
    h = sizes.hidden_size
    norm_parameters = norm(sizes, 1).replicated_parameters
    next_sentence = (2 * h + 2) * sizes.pooler
    return h * h + h + norm_parameters + sizes.vocabulary_size + next_sentence
