"""A transformer of which only parameters and products were counted, block by block.

What stands in its layers: parameters exactly; FLOPs of all products with matrices (2 per active
parameter and token) and of full attention (a window is not subtracted); activations by the rules
of `formulations.instance.parts`: inputs of norms, attention and network whole, and per matrix its
side that is not the residual stream, split. Blocks with equal figures are one layer kind: `block`,
`block_2`, ... in the order of the chain. As in Megatron-LM, matrices are split over the tp ranks,
but for the routers.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import groupby

from formulations.instance.parts import FLASH_BYTES, LOSS_KERNELS, TOKEN_ID_BYTES, Part
from formulations.instance.workload import CORE_PRODUCTS, Layer, LayerRun


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

    def __add__(self, other: "CountedPart") -> "CountedPart":
        """Counts of both."""
        return CountedPart(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def of_tokens(self, s: int, flash: bool, dropout: bool, num_kv_heads: int = 0) -> Part:
        """Costs for s tokens; scores as in `formulations.instance.parts`."""
        kept = FLASH_BYTES * s if flash else (5 if dropout else 2) * s * s
        fixed = FLASH_BYTES * s if flash else dropout * s * s
        core_kernels = (1 if flash else 3 + dropout) if self.score_columns else 0
        scores = 2 * s * s * self.score_columns
        return Part(
            sharded_parameters=self.split_parameters,
            replicated_parameters=self.whole_parameters,
            flops=2 * s * self.products + scores,
            unweighted_flops=scores,
            kernels=self.kernels + core_kernels,
            memory_kernels=self.memory_kernels + max(0, core_kernels - CORE_PRODUCTS),
            sharded_bytes=self.split_kept_bytes * s + self.heads * kept,
            released_sharded_bytes=self.heads * kept,
            fixed_sharded_bytes=self.heads * fixed,
            attention_flops=scores,
            replicated_bytes=self.whole_kept_bytes * s,
            core_bytes=0 if flash else self.heads * kept,
            flash_bytes=0 if flash else FLASH_BYTES * self.heads * s,
            core_kernels=0 if flash else core_kernels,
            expert_parameters=self.expert_parameters,
            expert_flops=2 * s * self.expert_products,
            routed_bytes=2 * s * self.routed_width,
            query_bytes=2 * s * self.score_columns,
            key_value_bytes=2 * s * self.score_columns * num_kv_heads // max(self.heads, 1),
        )


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
        h, v = self.hidden_size, self.vocabulary_rows
        lookup = Part(
            kernels=1 + self.dropout,
            memory_kernels=1 + self.dropout,
            forward_all_reduces=1,
            replicated_bytes=s * h * self.dropout,
            fixed_replicated_bytes=s * h * self.dropout,
        )
        ids = lookup + self.before.of_tokens(s, flash, self.dropout)
        projection = Part(
            flops=2 * s * v * self.vocabulary_columns,
            kernels=1 + LOSS_KERNELS,
            memory_kernels=LOSS_KERNELS,
            backward_all_reduces=1,
            replicated_bytes=2 * s * h,
            sharded_bytes=4 * s * v,
            fixed_sharded_bytes=4 * s * v,
        )
        head = projection + self.behind.of_tokens(s, flash, self.dropout)
        runs = [
            (self._layer("embedding", ids.widened(factor), TOKEN_ID_BYTES * s), 1),
            *self._blocks(s, flash, factor),
            (self._layer("head", head.widened(factor), 2 * factor * s * h), 1),
        ]
        return tuple(LayerRun(layer=layer, count=count) for layer, count in runs)

    def _blocks(self, s: int, flash: bool, factor: int) -> Iterator[tuple[Layer, int]]:
        kinds = {part: i for i, part in enumerate(dict.fromkeys(self.blocks), start=1)}
        masks = 2 * s * self.hidden_size * self.dropout
        common = Part(
            forward_all_reduces=2,
            backward_all_reduces=2,
            replicated_bytes=masks,
            released_replicated_bytes=masks,
            fixed_replicated_bytes=masks,
        )
        for block, equal in groupby(self.blocks):
            kind = "block" if kinds[block] == 1 else f"block_{kinds[block]}"
            part = common + block.of_tokens(s, flash, self.dropout, self.num_kv_heads)
            width = 2 * factor * s * self.hidden_size
            yield self._layer(kind, part.widened(factor), width), len(list(equal))

    def _layer(self, kind: str, part: Part, input_bytes: int) -> Layer:
        is_block = kind not in ("embedding", "head")
        return part.layer(
            kind,
            is_block=is_block,
            input_bytes=input_bytes,
            vocabulary=(0, 0) if is_block else (self.vocabulary_rows, self.vocabulary_columns),
            tied_copy=kind == "head" and self.tied_embeddings,
        )
