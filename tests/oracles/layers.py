"""The layers of a transformer as docs/cost.md counts them; no code of the packages works here."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from formulations.instance.sizes import TransformerSizes


class Parameters(NamedTuple):
    """Parameters of a layer: divided by tp, whole on every GPU, of all its routed experts."""

    sharded: int = 0
    replicated: int = 0
    experts: int = 0

    def __add__(self, more: tuple[int, ...]) -> "Parameters":  # type: ignore[override]
        return Parameters(*(a + b for a, b in zip(self, more, strict=True)))


@dataclass(frozen=True)
class Row:
    """One layer of the chain, for a micro-batch.

    vocabulary: rows of a matrix of width h; copy: only with several stages. all_reduces: forward,
    backward, of tensor groups; routed: whether tokens visit routed experts.
    """

    kind: str
    parameters: Parameters
    all_reduces: tuple[int, int]
    vocabulary: int = 0
    copy: bool = False
    routed: bool = False
    attention: bool = False


@dataclass(frozen=True)
class Model:
    """A transformer, its sequences, and bytes per element, parameter and gradient on the wire."""

    sizes: TransformerSizes
    tokens: int
    element_bytes: int = 2
    parameter_bytes: int = 2
    gradient_bytes: int = 4

    @property
    def hidden(self) -> int:
        return self.sizes.hidden_size

    def layers(self) -> list[Row]:
        return [self._embedding(), *self._blocks(), self._head()]

    def parameters(self, layer: Row, tp: int, pp: int) -> tuple[int, int]:
        """On one GPU: without those of routed experts, and all of these that tp GPUs share."""
        padded = 128 * tp * ceil(layer.vocabulary / (128 * tp))
        vocabulary = 0 if layer.copy and pp == 1 else padded // tp * self.hidden
        dense = layer.parameters.sharded // tp + layer.parameters.replicated
        return dense + vocabulary, layer.parameters.experts

    def flops(self, layer: Row) -> int:
        """Of a sequence forward: 2 s x (parameters of products) + 4 s^2 x (heads x head size)."""
        sizes, s = self.sizes, self.tokens
        projection = 2 * s * self.hidden * sizes.vocabulary_size
        if layer.kind == "embedding":
            return 0
        if layer.kind == "head":
            joined = 4 * s * self.hidden**2
            module = joined + self._block_flops(sizes.moe is not None) + projection
            return projection + sizes.mtp_layers * module
        crossing = self._attention_flops() if layer.kind == "decoder" else 0
        return self._block_flops(layer.routed) + crossing

    def _block_flops(self, routed: bool) -> int:
        sizes, s = self.sizes, self.tokens
        matrices = 3 if sizes.gated_ffn else 2
        width = sizes.ffn_size or 4 * self.hidden
        if routed and sizes.moe is not None:
            moe = sizes.moe
            width = (moe.experts_per_token + moe.shared_experts) * moe.ffn_size
            router = 2 * s * self.hidden * moe.experts
        else:
            router = 0
        return self._attention_flops() + 2 * s * self.hidden * width * matrices + router

    def _attention_flops(self) -> int:
        sizes, s = self.sizes, self.tokens
        queries = sizes.heads * self._head_dim
        values = (sizes.kv_heads or sizes.heads) * self._head_dim
        return 2 * s * self.hidden * 2 * (queries + values) + 4 * s * s * queries

    def row_bytes(self) -> tuple[int, int, int]:
        """Of a sequence's queries, of its values, of what a dense feed-forward gives inside."""
        queries, values = self.query_bytes() // 2, self.key_value_bytes() // 2
        width = self.sizes.ffn_size or 4 * self.hidden
        return queries, values, self.element_bytes * self.tokens * width

    def key_value_bytes(self) -> int:
        heads = self.sizes.kv_heads or self.sizes.heads
        return 2 * self.element_bytes * self.tokens * heads * self._head_dim

    def query_bytes(self) -> int:
        return 2 * self.element_bytes * self.tokens * self.sizes.heads * self._head_dim

    @property
    def _head_dim(self) -> int:
        return self.sizes.head_dim or self.hidden // self.sizes.heads

    @property
    def _norm(self) -> Parameters:
        return Parameters(replicated=self.hidden * (2 if self.sizes.norm == "layernorm" else 1))

    def _embedding(self) -> Row:
        sizes = self.sizes
        stacks = 1 if sizes.decoder_layers is None else 2
        tables = (sizes.learned_positions or 0) + sizes.token_types
        biases = stacks * (sizes.relative_position_buckets or 0) * sizes.heads
        parameters = Parameters(replicated=tables * self.hidden + biases)
        parameters += self._norm if sizes.embedding_norm else Parameters()
        return Row("embedding", parameters, (stacks, 0), sizes.vocabulary_size)

    def _attention(self) -> Parameters:
        sizes, dim = self.sizes, self._head_dim
        queries, values = sizes.heads * dim, (sizes.kv_heads or sizes.heads) * dim
        columns = queries + 2 * values
        sharded = self.hidden * (columns + queries) + columns * sizes.qkv_biases
        sharded += sizes.heads * sizes.attention_sinks
        return Parameters(sharded, self.hidden * sizes.output_bias + 2 * dim * sizes.qk_norms)

    def _network(self, width: int, biases: bool) -> Parameters:
        inner = 2 if self.sizes.gated_ffn else 1
        sharded = (inner + 1) * self.hidden * width + biases * inner * width
        return Parameters(sharded, biases * self.hidden)

    def _block(self, dense: bool) -> Row:
        sizes = self.sizes
        moe = None if dense else sizes.moe
        norms = 2 * (1 + sizes.branch_norms)
        parameters = Parameters()
        for part in (*[self._norm] * norms, self._attention()):
            parameters += part
        if moe is None:
            network = self._network(sizes.ffn_size or 4 * self.hidden, sizes.ffn_biases)
            return Row("block", parameters + network, (2, 2), attention=True)
        experts = moe.experts * self._network(moe.ffn_size, False).sharded
        parameters += Parameters(replicated=self.hidden * moe.experts, experts=experts)
        parameters += self._network(moe.shared_experts * moe.ffn_size, False)
        number = 3 if moe.shared_experts else 2
        return Row("block", parameters, (number, number), routed=True, attention=True)

    def _blocks(self) -> Iterator[Row]:
        sizes = self.sizes
        dense = sizes.moe.dense_first_layers if sizes.moe else sizes.layers
        for block in range(sizes.layers):
            yield self._block(block < dense)
        for block in range(sizes.decoder_layers or 0):
            parameters = self._block(dense=True).parameters + self._attention() + self._norm
            rows = 0 if block else sizes.vocabulary_size
            yield Row("decoder", parameters, (3, 4), rows, copy=True, attention=True)

    def _head(self) -> Row:
        sizes = self.sizes
        parameters, forward, backward = Parameters(), 0, 1
        for _ in range(sizes.final_norm * (1 if sizes.decoder_layers is None else 2)):
            parameters += self._norm
        last = self._block(dense=False)
        for _ in range(sizes.mtp_layers):
            for part in (*[self._norm] * (2 + sizes.final_norm), last.parameters):
                parameters += part
            parameters += Parameters(sharded=2 * self.hidden**2)
            forward += 2 + last.all_reduces[0]
            backward += 2 + last.all_reduces[1]
        copy = sizes.tied_embeddings or sizes.mtp_layers > 0
        if copy and not sizes.tied_embeddings:
            parameters += Parameters(sharded=sizes.vocabulary_size * self.hidden)
        predicts = sizes.mtp_layers > 0
        figures = parameters, (forward, backward), sizes.vocabulary_size, copy
        return Row("head", *figures, routed=predicts and last.routed, attention=predicts)
