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
"""

from collections.abc import Iterator
from itertools import groupby

from formulations.errors import InstanceError
from formulations.instance.attention import cross_attention, latent_attention, self_attention
from formulations.instance.chain_ends import embedding_layer, head_layer, training_only
from formulations.instance.counted import CountedModel
from formulations.instance.feed_forward import dense_ffn, moe_ffn
from formulations.instance.parts import Part, block_norms, norm
from formulations.instance.precision import FORMATS, MASTER_BYTES, Precision
from formulations.instance.sizes import (
    LatentAttentionSizes,
    MoeSizes,
    TransformerSizes,
    WindowSizes,
)
from formulations.instance.workload import (
    OPTIMIZER_BYTES,
    Layer,
    LayerRun,
    OptimizerState,
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
