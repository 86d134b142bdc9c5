"""A transformer of which only parameters and products were counted, block by block.

What stands in its layers: parameters exactly; FLOPs of all products with matrices (2 per active
parameter and token) and of full attention (a window is not subtracted); activations by the rules
of `formulations.instance.parts`: inputs of norms, attention and network whole, and per matrix its
side that is not the residual stream, split. Blocks with equal figures are one layer kind: `block`,
`block_2`, ... in the order of the chain. As in Megatron-LM, matrices are split over the tp ranks,
but for the routers.
"""

from dataclasses import dataclass
from itertools import groupby

from formulations.instance.parts import (
    TOKEN_ID_BYTES,
    Part,
    dropout_masks,
    layer_of,
    lookup,
    projection,
    scores,
)
from formulations.instance.workload import LayerRun

#: Of a part per token, what does not grow with the tokens: parameters, launches.
_ONCE = (
    *("sharded_parameters", "replicated_parameters", "expert_parameters"),
    *("kernels", "memory_kernels"),
)


def of_tokens(part: Part, s: int) -> Part:
    """A part per token, for s of them."""
    return Part({name: n * (1 if name in _ONCE else s) for name, n in part.items()})


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

    def layer_runs(self, s: int, flash: bool, factor: int) -> tuple[LayerRun, ...]:
        """The chain for sequences of s tokens, with elements of `factor` times 16 bit."""
        h, vocabulary = self.hidden_size, (self.vocabulary_rows, self.vocabulary_columns)
        ids = lookup(s * h, self.dropout) + of_tokens(self.before, s)
        embedding = layer_of(
            ids, "embedding", factor=factor, input_bytes=TOKEN_ID_BYTES * s, vocabulary=vocabulary
        )
        width, runs = 2 * factor * s * h, [LayerRun(layer=embedding, count=1)]
        kinds = list[Part]()
        for block, equal in groupby(self.blocks):
            if block not in kinds:
                kinds.append(block)
            kind = f"block_{1 + kinds.index(block)}" if kinds.index(block) else "block"
            part = self._block(block, s, flash)
            layer = layer_of(part, kind, factor=factor, input_bytes=width)
            runs.append(LayerRun(layer=layer, count=len(list(equal))))
        # The input of the product is the residual stream, whatever the width of the matrix is.
        logits = projection(s, h, self.vocabulary_rows)
        logits["forward_flops"] = 2 * s * self.vocabulary_rows * self.vocabulary_columns
        head = layer_of(
            logits + of_tokens(self.behind, s),
            "head",
            factor=factor,
            input_bytes=width,
            vocabulary=vocabulary,
            tied_copy=self.tied_embeddings,
        )
        return (*runs, LayerRun(layer=head, count=1))
