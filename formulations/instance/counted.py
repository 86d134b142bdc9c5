"""A transformer of which only parameters and products were counted, block by block.

What stands in its layers: parameters exactly; FLOPs of all products with matrices (2 per active
parameter and token) and of full attention (a window is not subtracted); activations by the rules
of `formulations.instance.parts`: inputs of norms, attention and network whole, and per matrix its
side that is not the residual stream, split. Blocks with equal figures are one layer kind: `block`,
`block_2`, ... in the order of the chain. As in Megatron-LM, matrices are split over the tp ranks,
but for the routers.
"""

from dataclasses import astuple, dataclass
from itertools import groupby
from operator import add

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


@dataclass(frozen=True)
class CountedPart:
    """What one block, or all that stands before or behind the blocks, has and keeps."""

    split_parameters: int = 0  #: divided by tp
    whole_parameters: int = 0
    products: int = 0  #: multiplications per token
    kernels: int = 0
    memory_kernels: int = 0  #: of these, those that multiply no matrix
    split_kept_bytes: int = 0  #: per token, for the backward pass
    whole_kept_bytes: int = 0
    score_columns: int = 0  #: heads * (width of a query + width of a value); 0: no attention
    heads: int = 0
    expert_parameters: int = 0  #: of the split ones, those of routed experts
    expert_products: int = 0  #: of the products, those with them
    routed_width: int = 0  #: elements per token on their way to them

    def __add__(self, more: "CountedPart") -> "CountedPart":
        return CountedPart(*map(add, astuple(self), astuple(more)))

    def of_tokens(self, s: int, flash: bool, dropout: bool, num_kv_heads: int = 0) -> Part:
        """Costs for s tokens; scores as in `formulations.instance.parts`."""
        part = Part(
            sharded_parameters=self.split_parameters,
            replicated_parameters=self.whole_parameters,
            forward_flops=2 * s * self.products,
            kernels=self.kernels,
            memory_kernels=self.memory_kernels,
            sharded_activation_bytes=self.split_kept_bytes * s,
            replicated_activation_bytes=self.whole_kept_bytes * s,
            expert_parameters=self.expert_parameters,
            expert_flops=2 * s * self.expert_products,
            routed_bytes=2 * s * self.routed_width,
        )
        if self.score_columns:
            scored = scores(self.heads, self.score_columns, s, s, flash, dropout)
            part += scored + Part(
                attention_flops=scored["forward_flops"],
                key_value_bytes=2 * s * self.score_columns * num_kv_heads // max(self.heads, 1),
            )
        return part


@dataclass(frozen=True)
class CountedModel:
    """A chain of counted blocks between an embedding and a head."""

    hidden_size: int
    vocabulary_rows: int
    vocabulary_columns: int
    tied_embeddings: bool
    blocks: tuple[CountedPart, ...]
    before: CountedPart  #: beside the vocabulary matrix
    behind: CountedPart
    heads: int  #: 1 where there is no attention
    num_kv_heads: int
    dropout: bool
    learned_positions: int | None
    num_experts: int = 0  #: per block that has any

    num_streams = 1

    @property
    def parameters(self) -> int:
        """All parameters; a tied matrix once."""
        parts = (self.before, *self.blocks, self.behind)
        matrices = (2 - self.tied_embeddings) * self.vocabulary_rows * self.vocabulary_columns
        return matrices + sum(part.split_parameters + part.whole_parameters for part in parts)

    def layer_runs(self, s: int, flash: bool, factor: int) -> tuple[LayerRun, ...]:
        """The chain for sequences of s tokens, with elements of `factor` times 16 bit."""
        h, vocabulary = self.hidden_size, (self.vocabulary_rows, self.vocabulary_columns)
        ids = lookup(s * h, self.dropout) + self.before.of_tokens(s, flash, self.dropout)
        embedding = layer_of(
            ids, "embedding", factor=factor, input_bytes=TOKEN_ID_BYTES * s, vocabulary=vocabulary
        )
        # Every block: tensor groups all-reduce behind attention and network, where masks are.
        around = Part(forward_all_reduces=2, backward_all_reduces=2)
        around += dropout_masks(2 * s * h * self.dropout)
        width, runs = 2 * factor * s * h, [LayerRun(layer=embedding, count=1)]
        numbers = {part: i for i, part in enumerate(dict.fromkeys(self.blocks), start=1)}
        for block, equal in groupby(self.blocks):
            kind = "block" if numbers[block] == 1 else f"block_{numbers[block]}"
            part = around + block.of_tokens(s, flash, self.dropout, self.num_kv_heads)
            layer = layer_of(part, kind, factor=factor, input_bytes=width)
            runs.append(LayerRun(layer=layer, count=len(list(equal))))
        # The input of the product is the residual stream, whatever the width of the matrix is.
        logits = projection(s, h, self.vocabulary_rows)
        logits["forward_flops"] = 2 * s * self.vocabulary_rows * self.vocabulary_columns
        head = layer_of(
            logits + self.behind.of_tokens(s, flash, self.dropout),
            "head",
            factor=factor,
            input_bytes=width,
            vocabulary=vocabulary,
            tied_copy=self.tied_embeddings,
        )
        return (*runs, LayerRun(layer=head, count=1))
