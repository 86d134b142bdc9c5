"""From the sizes of a transformer to the chain of layers with its costs.

Layer kinds (profile keys): `embedding`; `block`, or `dense_block` for the first dense blocks of
a mixture-of-experts model; `sliding_block` (`sliding_dense_block`) for those blocks of a model
that a window makes cheaper than its others; `encoder` and `decoder` of an encoder-decoder; `head`.

Assumptions. Encoder and decoder of an encoder-decoder read sequences of the same length. As in
Megatron-LM (core/pipeline_parallel/schedules.py, get_tensor_configs), 2 s h cross a boundary behind
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

Of a transformer of other sizes only parameters and products are counted, block by block. What
stands in its layers: parameters exactly; FLOPs of all products with matrices (2 per active
parameter and token) and of full attention (a window is not subtracted); activations by the rules
of `formulations.instance.parts`: inputs of norms, attention and network whole, and per matrix its
side that is not the residual stream, split. Blocks with equal figures are one layer kind: `block`,
`block_2`, ... in the order of the chain. As in Megatron-LM, matrices are split over the tp ranks,
but for the routers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from formulations.errors import InstanceError
from formulations.instance.parts import (
    Part,
    cross_attention,
    dense_ffn,
    dropout_masks,
    latent_attention,
    layer_of,
    lookup,
    memory_kernels,
    moe_ffn,
    per_op,
    projection,
    scores,
    self_attention,
)
from formulations.instance.sizes import TransformerSizes
from formulations.instance.workload import (
    FORMATS,
    MASTER_BYTES,
    OPTIMIZER_BYTES,
    LayerRun,
    OptimizerState,
    Precision,
    Workload,
)

#: Of a part per token, what does not grow with the tokens: parameters, launches.
_ONCE = (
    *("sharded_parameters", "replicated_parameters", "expert_parameters"),
    *("kernels", "memory_kernels"),
)


def of_tokens(part: Part, s: int) -> Part:
    """A part per token, for s of them."""
    return Part({name: n * (1 if name in _ONCE else s) for name, n in part.items()})


#: Equal layers in a row: their kind, what each costs, their number. Those that do not say what they
#: take and hand on do so with one tensor as wide as the residual stream.
Run = tuple[str, Part, int]


@dataclass(frozen=True)
class CountedModel:
    """A chain of counted blocks between an embedding and a head.

    before, blocks, behind: per token, without the vocabulary's matrices; `score_columns` of a block
    are its heads times the widths of a query and a value.
    """

    hidden_size: int
    vocabulary_rows: int
    vocabulary_columns: int
    tied_embeddings: bool
    blocks: tuple[Part, ...]
    before: Part
    behind: Part
    heads: int  #: 1 where there is no attention
    num_kv_heads: int
    dropout: bool
    learned_positions: int | None
    num_experts: int = 0  #: per block that has any

    @property
    def parameters(self) -> int:
        """All parameters; a tied matrix once."""
        matrices = (2 - self.tied_embeddings) * self.vocabulary_rows * self.vocabulary_columns
        names = "sharded_parameters", "replicated_parameters"
        parts = (self.before, *self.blocks, self.behind)
        return matrices + sum(part[name] for part in parts for name in names)

    def _block(self, block: Part, s: int, flash: bool) -> Part:
        """Costs for s tokens; scores as in `formulations.instance.parts`.

        Tensor groups all-reduce behind attention and network, where masks are.
        """
        part = of_tokens(block, s) + Part(forward_all_reduces=2, backward_all_reduces=2)
        part += dropout_masks(2 * s * self.hidden_size * self.dropout)
        if columns := block["score_columns"]:
            scored = scores(self.heads, columns, s, s, flash, self.dropout)
            part += scored + Part(
                attention_flops=scored["forward_flops"],
                key_value_bytes=2 * s * columns * self.num_kv_heads // self.heads,
            )
        return part

    def chain(self, s: int, flash: bool, fused: bool) -> Iterator[Run]:
        """Layers for sequences of s tokens, in the order of the chain."""
        rows, columns = self.vocabulary_rows, self.vocabulary_columns
        matrix = Part(vocabulary_rows=rows, vocabulary_columns=columns)
        tokens = lookup(s, self.hidden_size, self.dropout) + of_tokens(self.before, s)
        yield "embedding", tokens + matrix, 1
        kinds = list[Part]()
        for block, equal in groupby(self.blocks):
            if block not in kinds:
                kinds.append(block)
            kind = f"block_{1 + kinds.index(block)}" if kinds.index(block) else "block"
            yield kind, self._block(block, s, flash), len(list(equal))
        # The input of the product is the residual stream, whatever the width of the matrix is.
        logits = projection(s, self.hidden_size, rows, fused)
        logits["forward_flops"] = 2 * s * rows * columns
        tied = Part(tied_copy=self.tied_embeddings)
        yield "head", logits + of_tokens(self.behind, s) + matrix + tied, 1


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
    fused_cross_entropy: bool = False,
) -> Workload:
    """Workload of a transformer; InstanceError for more tokens than it has learned positions."""
    positions = architecture.learned_positions
    if positions is not None and sequence_length > positions:
        raise InstanceError(
            "workload.sequence_length",
            f"{sequence_length} on {name} with {positions} learned positions",
            f"1 to {positions}, or sizes with more learned_positions",
        )
    formats = FORMATS[precision]
    stream = Part(input_bytes=2 * sequence_length * architecture.hidden_size, output_tensors=1)
    settings, runs = (sequence_length, flash_attention, fused_cross_entropy), list[LayerRun]()
    if isinstance(architecture, TransformerSizes):
        sizes, chain = architecture, _chain(architecture, *settings)
    else:
        sizes, chain = None, architecture.chain(*settings)
    unpublished = 0
    for kind, part, count in chain:
        unpublished += part["unpublished_parameters"]
        part = part if part["input_bytes"] else part + stream
        layer = layer_of(part, kind, formats.element_bytes // 2)
        runs.append(LayerRun(layer=layer, count=count))
    trained = sum(run.layer.parameters * run.count for run in runs)
    moe = sizes and sizes.moe
    return Workload(
        name=name,
        source=source,
        sizes=sizes,
        layer_runs=tuple(runs),
        parameters=trained - unpublished,
        sequence_length=sequence_length,
        global_batch=global_batch,
        hidden_size=architecture.hidden_size,
        kv_heads=architecture.num_kv_heads,
        experts=architecture.num_experts,
        expert_biases=bool(moe and moe.biases),
        boundary_bytes=formats.element_bytes * sequence_length * architecture.hidden_size,
        tied_embeddings=architecture.tied_embeddings,
        mtp_layers=sizes.mtp_layers if sizes else 0,
        precision=precision,
        parameter_bytes=formats.parameter_bytes,
        copy_bytes=formats.copy_bytes,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=OPTIMIZER_BYTES[optimizer_state][0] - MASTER_BYTES + formats.master_bytes,
        optimizer_block_bytes=OPTIMIZER_BYTES[optimizer_state][1],
        flash_attention=flash_attention,
        fused_cross_entropy=fused_cross_entropy,
    )


def _chain(sizes: TransformerSizes, s: int, flash: bool, fused: bool) -> Iterator[Run]:
    """Layers for sequences of s tokens, in the order of the chain."""
    matrix = Part(vocabulary_rows=sizes.vocabulary_size, vocabulary_columns=sizes.hidden_size)
    yield "embedding", _embedding(sizes, s) + matrix, 1
    if sizes.decoder_layers is not None:
        encoder = _block(sizes, s, flash)
        yield "encoder", encoder, sizes.layers
        both = Part(input_bytes=2 * 2 * s * sizes.hidden_size, output_tensors=2)
        decoder = encoder + cross_attention(sizes, s, flash) + _norms(sizes, s) + both
        yield "decoder", decoder + matrix + Part(tied_copy=1), 1
        if sizes.decoder_layers > 1:
            yield "decoder", decoder, sizes.decoder_layers - 1
    else:
        dense = sizes.moe.dense_first_layers if sizes.moe else 0
        # A window spares scores with flash attention alone; without it they are masked.
        window = sizes.window if flash and sizes.window and sizes.window.tokens < s else None
        sliding = [window is not None and window.covers(i) for i in range(sizes.layers)]
        for form, blocks in groupby(range(sizes.layers), key=lambda i: (i < dense, sliding[i])):
            kind = "dense_block" if form[0] else "block"
            prefix = "sliding_" if form[1] and not all(sliding) else ""
            yield prefix + kind, _block(sizes, s, flash, *form), len(list(blocks))
    tied = Part(tied_copy=sizes.tied_embeddings or sizes.mtp_layers > 0)
    yield "head", _head(sizes, s, flash, fused) + matrix + tied, 1


def _block(
    sizes: TransformerSizes, s: int, flash: bool, dense: bool = False, sliding: bool = False
) -> Part:
    """A block; `dense`: without the model's experts, `sliding`: with its window."""
    if sizes.latent_attention is not None:
        attention = latent_attention(sizes, sizes.latent_attention, s, flash)
    else:
        keys = sizes.window.tokens if sizes.window and sliding else s
        attention = self_attention(sizes, s, flash, keys)
    moe = None if dense else sizes.moe
    block = attention + (moe_ffn(sizes, moe, s) if moe else dense_ffn(sizes, s))
    # before attention and network, or before and behind both
    block += _norms(sizes, s, 4 if sizes.branch_norms else 2)
    if moe is None and sizes.latent_attention is None and sizes.decoder_layers is None:
        block += per_op(sizes, s)
    return block


def _norms(sizes: TransformerSizes, s: int, count: int = 1) -> Part:
    """So many norms over the residual stream; their inputs are kept."""
    h = count * sizes.hidden_size
    parameters = 2 * h if sizes.norm == "layernorm" else h
    kept = Part(replicated_parameters=parameters, replicated_activation_bytes=2 * s * h)
    return kept + memory_kernels(count)


def _embedding(sizes: TransformerSizes, s: int) -> Part:
    """Lookups of tokens, positions and token types, their sums, norm and dropout.

    Kept: dropout masks and the norm's input. The vocabulary-parallel lookup needs one all-reduce
    per token stream. Kernels: lookup per table, an add per further table, norm, dropout.
    """
    h, streams = sizes.hidden_size, sizes.num_streams
    further_tables = (sizes.learned_positions is not None) + (sizes.token_types > 0)
    rows = (sizes.learned_positions or 0) + sizes.token_types
    biases = streams * (sizes.relative_position_buckets or 0) * sizes.heads
    part = lookup(s, h, sizes.dropout, streams) + memory_kernels(2 * streams * further_tables)
    part += Part(replicated_parameters=rows * h + biases)
    return part + _norms(sizes, s) if sizes.embedding_norm else part


def _head(sizes: TransformerSizes, s: int, flash: bool, fused: bool) -> Part:
    """Final norms, projection to the vocabulary and loss.

    Kept (Korthikanti et al. 2023, section 4.3): 2 s h per norm input and for the projection's
    input, logits in fp32. FLOPs are the projection's, 2 s h V; BERT's transform (h / V of that)
    and the layers over its first token are left out. `unpublished_parameters` are trained, but are
    not part of the published model.
    """
    h, v = sizes.hidden_size, sizes.vocabulary_size
    part = _logits(sizes, s, fused) + Part(replicated_parameters=(h * h + h) * sizes.pooler)
    if sizes.masked_lm_head:
        # What pre-training adds to the base model: transform, norm, output bias, classifier.
        next_sentence = (2 * h + 2) * sizes.pooler
        replicated = h * h + h + _norms(sizes, 1)["replicated_parameters"] + next_sentence
        matrix = 0 if sizes.tied_embeddings else v * h
        part += memory_kernels(2) + Part(  # the transform's activation and norm
            sharded_parameters=v,
            replicated_parameters=replicated,
            unpublished_parameters=0 if sizes.published_head else v + replicated + matrix,
            kernels=1,  # its matrix product with bias
            replicated_activation_bytes=3 * 2 * s * h,
        )
    for _ in range(sizes.mtp_layers):
        module = _prediction_module(sizes, s, flash, fused)
        trained = module["sharded_parameters"] + module["replicated_parameters"]
        part += module + Part(unpublished_parameters=trained)
    if sizes.mtp_layers and not sizes.tied_embeddings:
        part += Part(sharded_parameters=v * h)  # the layer's vocabulary matrix is the copy
    return part


def _logits(sizes: TransformerSizes, s: int, fused: bool) -> Part:
    """Final norms, product with the vocabulary matrix, loss."""
    product_and_loss = projection(s, sizes.hidden_size, sizes.vocabulary_size, fused)
    return product_and_loss + _norms(sizes, s, sizes.num_streams * sizes.final_norm)


def _prediction_module(sizes: TransformerSizes, s: int, flash: bool, fused: bool) -> Part:
    """One module of multi-token prediction: its block, and what stands around it.

    Norms of the block stack's output and of the next token's embedding, a 2h x h product of both,
    split by columns and gathered, the block, and the projection of the head with its own norm.
    Kernels: lookup, concatenation, product.
    """
    h = sizes.hidden_size
    joined = memory_kernels(2) + Part(
        sharded_parameters=2 * h * h,
        forward_flops=2 * s * 2 * h * h,
        kernels=1,
        forward_all_reduces=2,
        backward_all_reduces=1,
        replicated_activation_bytes=2 * 2 * s * h,
    )
    joined += _norms(sizes, s, 2)
    return joined + _block(sizes, s, flash) + _logits(sizes, s, fused)
