"""From the sizes of a transformer to the chain of layers with its costs.

Layer kinds (profile keys): `embedding`; `block`, or `dense_block` for the first dense blocks of
a mixture-of-experts model; `encoder` and `decoder` of an encoder-decoder; `head`.

Assumptions. Encoder and decoder of an encoder-decoder read sequences of the same length. As in
Megatron-LM (core/pipeline_parallel/schedules.py, get_tensor_shapes), 2 s h cross a boundary behind
the embedding or an encoder block, and 2 s h of the encoder's output besides behind a decoder block.
The decoder's tokens are looked up at its first block, in a copy of the embedding where there are
several stages; the copy's gradients are summed with those of the head's copy, at no further cost.
Small things that live elsewhere are booked where the chain
has a place: the relative position tables with the embedding, both final norms with the head.

`Workload.parameters` is the published model's, as Hugging Face counts it: tied matrices once, no
vocabulary padding, and for BERT the base model with its pooler. What BERT's pre-training adds
(Devlin et al. 2019, section 3.1: transform, norm and output bias of the masked-token head, and
the next-sentence classifier) is trained and so stands in the head layer, in memory and in the
gradients, but not in `Workload.parameters`.
"""

from formulations.errors import InstanceError
from formulations.instance.parts import (
    Part,
    cross_attention,
    dense_ffn,
    latent_attention,
    moe_ffn,
    norm,
    self_attention,
)
from formulations.instance.sizes import LatentAttentionSizes, MoeSizes, TransformerSizes
from formulations.instance.workload import Layer, LayerRun, Precision, Workload

__all__ = ["LatentAttentionSizes", "MoeSizes", "TransformerSizes", "build_workload"]

#: Kernels of the loss without fusion: cast, max, subtract, pick target, exp, sum, log.
LOSS_KERNELS = 7
#: Kernels of BERT's masked-token transform: matrix product with bias, activation, norm.
TRANSFORM_KERNELS = 3
TOKEN_ID_BYTES = 8


def build_workload(
    sizes: TransformerSizes,
    *,
    name: str,
    source: str,
    sequence_length: int,
    global_batch: int,
    precision: Precision = "bf16",
    gradient_bytes: int = 4,
    flash_attention: bool = False,
) -> Workload:
    """Workload of a transformer of the given sizes.

    Raises InstanceError where `sequence_length` is longer than the learned position table.
    """
    most = sizes.learned_positions
    if most is not None and sequence_length > most:
        raise InstanceError(
            "workload.sequence_length",
            f"{sequence_length} on {name} with {most} learned positions",
            f"1 to {most}, or sizes with more learned_positions",
        )
    runs = _layer_runs(sizes, sequence_length, flash_attention)
    return Workload(
        name=name,
        source=source,
        layer_runs=runs,
        parameters=sum(run.layer.parameters * run.count for run in runs)
        - _pretraining_parameters(sizes),
        sequence_length=sequence_length,
        global_batch=global_batch,
        hidden_size=sizes.hidden_size,
        kv_heads=sizes.num_kv_heads,
        boundary_bytes=2 * sequence_length * sizes.hidden_size,
        tied_embeddings=sizes.tied_embeddings,
        precision=precision,
        gradient_bytes=gradient_bytes,
    )


def _layer_runs(sizes: TransformerSizes, s: int, flash: bool) -> tuple[LayerRun, ...]:
    runs = [(_embedding(sizes, s), 1), *_blocks(sizes, s, flash), (_head(sizes, s), 1)]
    return tuple(LayerRun(layer=layer, count=count) for layer, count in runs if count)


def _blocks(sizes: TransformerSizes, s: int, flash: bool) -> list[tuple[Layer, int]]:
    """Layers and how many of each; a count may be 0."""
    h, moe = sizes.hidden_size, sizes.moe
    attention = _attention(sizes, s, flash) + norm(sizes, s)
    plain = attention + dense_ffn(sizes, s) + norm(sizes, s)
    if sizes.decoder_layers is not None:
        part = plain + cross_attention(sizes, s, flash) + norm(sizes, s)
        decoder = _block("decoder", part, 2 * 2 * s * h).model_copy(update={"output_tensors": 2})
        matrix = {"vocabulary_rows": sizes.vocabulary_size, "vocabulary_columns": h}
        return [
            (_block("encoder", plain, 2 * s * h), sizes.layers),
            (decoder.model_copy(update=matrix | {"tied_copy": True}), 1),
            (decoder, sizes.decoder_layers - 1),
        ]
    if moe is None:
        return [(_block("block", plain, 2 * s * h), sizes.layers)]
    routed = attention + moe_ffn(sizes, moe, s) + norm(sizes, s)
    return [
        (_block("dense_block", plain, 2 * s * h), moe.dense_first_layers),
        (_block("block", routed, 2 * s * h), sizes.layers - moe.dense_first_layers),
    ]


def _attention(sizes: TransformerSizes, s: int, flash: bool) -> Part:
    if sizes.latent_attention is not None:
        return latent_attention(sizes, sizes.latent_attention, s, flash)
    return self_attention(sizes, s, flash)


def _block(kind: str, part: Part, input_bytes: int) -> Layer:
    return _layer(kind, part, is_block=True, input_bytes=input_bytes)


def _embedding(sizes: TransformerSizes, s: int) -> Layer:
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
        forward_all_reduces=streams,
        replicated_bytes=streams * s * h * sizes.dropout,
    )
    if sizes.embedding_norm:
        part += norm(sizes, s)
    ids_bytes = streams * TOKEN_ID_BYTES * s
    return _layer("embedding", part, is_block=False, input_bytes=ids_bytes, vocabulary=sizes)


def _head(sizes: TransformerSizes, s: int) -> Layer:
    """Final norms, projection to the vocabulary and loss.

    Kept (Korthikanti et al. 2023, section 4.3): 2 s h per norm input and for the projection's
    input, logits in fp32. FLOPs are the projection's, 2 s h V; BERT's transform (h / V of that)
    and the layers over its first token are left out.
    """
    h, v = sizes.hidden_size, sizes.vocabulary_size
    part = Part(
        replicated_parameters=_pooler_parameters(sizes),
        flops=2 * s * h * v,
        kernels=1 + LOSS_KERNELS,
        backward_all_reduces=1,
        replicated_bytes=2 * s * h,
        sharded_bytes=4 * s * v,
    )
    for _ in range(sizes.num_streams * sizes.final_norm):
        part += norm(sizes, s)
    if sizes.masked_lm_head:
        transform = _pretraining_parameters(sizes) - v
        part += Part(
            sharded_parameters=v,
            replicated_parameters=transform,
            kernels=TRANSFORM_KERNELS,
            replicated_bytes=3 * 2 * s * h,
        )
    return _layer("head", part, is_block=False, input_bytes=2 * s * h, vocabulary=sizes)


def _pooler_parameters(sizes: TransformerSizes) -> int:
    h = sizes.hidden_size
    return (h * h + h) * sizes.pooler


def _pretraining_parameters(sizes: TransformerSizes) -> int:
    """Parameters that BERT's pre-training adds to the published base model."""
    if not sizes.masked_lm_head:
        return 0
    h = sizes.hidden_size
    norm_parameters = norm(sizes, 1).replicated_parameters
    next_sentence = (2 * h + 2) * sizes.pooler
    return h * h + h + norm_parameters + sizes.vocabulary_size + next_sentence


def _layer(
    kind: str,
    part: Part,
    *,
    is_block: bool,
    input_bytes: int,
    vocabulary: TransformerSizes | None = None,
) -> Layer:
    return Layer(
        kind=kind,
        is_block=is_block,
        sharded_parameters=part.sharded_parameters,
        replicated_parameters=part.replicated_parameters,
        vocabulary_rows=vocabulary.vocabulary_size if vocabulary else 0,
        vocabulary_columns=vocabulary.hidden_size if vocabulary else 0,
        tied_copy=vocabulary is not None and kind == "head" and vocabulary.tied_embeddings,
        forward_flops=part.flops,
        kernels=part.kernels,
        forward_all_reduces=part.forward_all_reduces,
        backward_all_reduces=part.backward_all_reduces,
        replicated_activation_bytes=part.replicated_bytes,
        sharded_activation_bytes=part.sharded_bytes,
        input_bytes=input_bytes,
    )
