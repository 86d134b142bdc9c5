"""From the sizes of a transformer to the chain of layers with its costs.

Layer kinds (profile keys): `embedding`; `block`, or `dense_block` for the first dense blocks of
a mixture-of-experts model; `sliding_block` (`sliding_dense_block`) for those blocks of a model
that a window makes cheaper than its others; `encoder` and `decoder` of an encoder-decoder; `head`.

Assumptions. Encoder and decoder of an encoder-decoder read sequences of the same length. As in
Megatron-LM (core/pipeline_parallel/schedules.py, get_tensor_shapes), 2 s h cross a boundary behind
the embedding or an encoder block, and 2 s h of the encoder's output besides behind a decoder block.
The decoder's tokens are looked up at its first block, in a copy of the embedding where there are
several stages; the copy's gradients are summed with those of the head's copy, at no further cost.
Small things that live elsewhere are booked where the chain
has a place: the relative position tables with the embedding, both final norms with the head.

`Workload.parameters` is the published model's, as Hugging Face counts it: tied matrices once, no
vocabulary padding. What BERT's pre-training adds (Devlin et al. 2019, section 3.1: transform, norm
and output bias of the masked-token head, and the next-sentence classifier), and multi-token
prediction modules, are trained and so stand in the head layer, in memory and in the gradients. They
are in `Workload.parameters` only where the published model has them: `published_head`.

The head of a model that is trained with multi-token prediction (DeepSeek-AI 2024, arXiv
2412.19437, section 2.2) holds those modules too, as Megatron-LM puts them on the last stage. They
look up the embedding's matrix again, so the head holds a copy of it where it lies on another
stage, and its gradient is all-reduced as that of tied embeddings.
"""

from collections.abc import Iterator
from itertools import groupby

from formulations.errors import InstanceError
from formulations.instance.counted import CountedModel
from formulations.instance.parts import (
    LOSS_KERNELS,
    TOKEN_ID_BYTES,
    Part,
    cross_attention,
    dense_ffn,
    latent_attention,
    memory_kernels,
    moe_ffn,
    self_attention,
)
from formulations.instance.sizes import (
    LatentAttentionSizes,
    MoeSizes,
    TransformerSizes,
    WindowSizes,
)
from formulations.instance.workload import (
    FORMATS,
    MASTER_BYTES,
    OPTIMIZER_BYTES,
    Layer,
    LayerRun,
    OptimizerState,
    Precision,
    Workload,
)

__all__ = [
    "Architecture",
    "LatentAttentionSizes",
    "MoeSizes",
    "TransformerSizes",
    "WindowSizes",
    "build_workload",
]

#: By its sizes, or counted where it has none of ours.
Architecture = TransformerSizes | CountedModel


def build_workload(
    architecture: Architecture,
    *,
    name: str,
    source: str,
    sequence_length: int,
    global_batch: int,
    precision: Precision = "bf16",
    gradient_bytes: int = 4,
    flash_attention: bool = False,
    optimizer_state: OptimizerState = "fp32",
) -> Workload:
    """Workload of a transformer of the given sizes or counts.

    Raises InstanceError where `sequence_length` is longer than the learned position table.
    """
    most = architecture.learned_positions
    if most is not None and sequence_length > most:
        raise InstanceError(
            "workload.sequence_length",
            f"{sequence_length} on {name} with {most} learned positions",
            f"1 to {most}, or sizes with more learned_positions",
        )
    formats = FORMATS[precision]
    factor = formats.element_bytes // 2
    if isinstance(architecture, CountedModel):
        runs, unpublished = architecture.layer_runs(sequence_length, flash_attention, factor), 0
        mtp_layers, biases = 0, False
    else:
        runs = _layer_runs(architecture, sequence_length, flash_attention, factor)
        block = _block(architecture, sequence_length, flash_attention)
        unpublished = training_only(architecture, block)
        mtp_layers = architecture.mtp_layers
        biases = architecture.moe is not None and architecture.moe.biases
    return Workload(
        name=name,
        source=source,
        layer_runs=runs,
        parameters=sum(run.layer.parameters * run.count for run in runs) - unpublished,
        sequence_length=sequence_length,
        global_batch=global_batch,
        hidden_size=architecture.hidden_size,
        kv_heads=architecture.num_kv_heads,
        experts=architecture.num_experts,
        expert_biases=biases,
        boundary_bytes=formats.element_bytes * sequence_length * architecture.hidden_size,
        tied_embeddings=architecture.tied_embeddings,
        mtp_layers=mtp_layers,
        precision=precision,
        parameter_bytes=formats.parameter_bytes,
        copy_bytes=formats.copy_bytes,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=OPTIMIZER_BYTES[optimizer_state][0] - MASTER_BYTES + formats.master_bytes,
        optimizer_block_bytes=OPTIMIZER_BYTES[optimizer_state][1],
        flash_attention=flash_attention,
    )


def _layer_runs(sizes: TransformerSizes, s: int, flash: bool, factor: int) -> tuple[LayerRun, ...]:
    last = _block(sizes, s, flash)
    runs = [
        (embedding_layer(sizes, s, factor), 1),
        *_blocks(sizes, s, flash, factor),
        (head_layer(sizes, s, last, factor), 1),
    ]
    return tuple(LayerRun(layer=layer, count=count) for layer, count in runs)


def _blocks(
    sizes: TransformerSizes, s: int, flash: bool, factor: int
) -> Iterator[tuple[Layer, int]]:
    """Layers in the order of the chain, and how many of each follow one another."""
    width = 2 * factor * s * sizes.hidden_size
    if sizes.decoder_layers is not None:
        encoder = _block(sizes, s, flash)
        decoder = encoder + cross_attention(sizes, s, flash) + norm(sizes, s)
        yield _as_layer("encoder", encoder.widened(factor), width), sizes.layers
        block = _as_layer("decoder", decoder.widened(factor), 2 * width).but(output_tensors=2)
        matrix = {
            "vocabulary_rows": sizes.vocabulary_size,
            "vocabulary_columns": sizes.hidden_size,
            "tied_copy": True,
        }
        yield block.model_copy(update=matrix), 1
        if sizes.decoder_layers > 1:
            yield block, sizes.decoder_layers - 1
        return
    dense = sizes.moe.dense_first_layers if sizes.moe else 0
    sliding = [_slides(sizes, s, flash, block) for block in range(sizes.layers)]
    for form, blocks in groupby(range(sizes.layers), key=lambda i: (i < dense, sliding[i])):
        kind = "dense_block" if form[0] else "block"
        prefix = "sliding_" if form[1] and not all(sliding) else ""
        part = _block(sizes, s, flash, *form)
        yield _as_layer(prefix + kind, part.widened(factor), width), len(list(blocks))


def _as_layer(kind: str, part: Part, input_bytes: int) -> Layer:
    return part.layer(kind, is_block=True, input_bytes=input_bytes)


def _slides(sizes: TransformerSizes, s: int, flash: bool, block: int) -> bool:
    """Whether a window spares the block scores; without flash attention they are masked only."""
    window = sizes.window
    return window is not None and flash and window.tokens < s and window.covers(block)


def _block(
    sizes: TransformerSizes, s: int, flash: bool, dense: bool = False, sliding: bool = False
) -> Part:
    """A block; `dense`: without the model's experts, `sliding`: with its window."""
    moe = None if dense else sizes.moe
    network = moe_ffn(sizes, moe, s) if moe else dense_ffn(sizes, s)
    attention = _attention(sizes, s, flash, sliding)
    return attention + block_norms(sizes, s) + network + block_norms(sizes, s)


def _attention(sizes: TransformerSizes, s: int, flash: bool, sliding: bool) -> Part:
    if sizes.latent_attention is not None:
        return latent_attention(sizes, sizes.latent_attention, s, flash)
    keys = sizes.window.tokens if sizes.window and sliding else s
    return self_attention(sizes, s, flash, keys)


#: Kernels of BERT's masked-token transform: matrix product with bias, activation, norm.
TRANSFORM_KERNELS = 3


def norm(sizes: TransformerSizes, s: int) -> Part:
    """A norm over the residual stream; its input is kept."""
    h = sizes.hidden_size
    parameters = 2 * h if sizes.norm == "layernorm" else h
    return Part(replicated_parameters=parameters, replicated_bytes=2 * s * h) + memory_kernels(1)


def block_norms(sizes: TransformerSizes, s: int) -> Part:
    """One norm for attention or feed-forward, or one before and one behind it."""
    return norm(sizes, s) + norm(sizes, s) if sizes.branch_norms else norm(sizes, s)


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
