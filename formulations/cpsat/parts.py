"""The parts of a model, each fixed or free."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from formulations.costs.tables import Array
from formulations.cpsat.terms import Linear, Literal
from formulations.decisions import Decisions


class Split(Protocol):
    """Layers of every stage."""

    def stage_sum(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of a stage."""

    def sum_up_to(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of all stages up to this one."""

    def begun(self, stage: int, layer: int) -> Literal:
        """Whether a stage starts at a layer or before it; stage S never does."""

    def largest(self, stages: Iterable[int], values: Array) -> Linear:
        """At least every one of `values` [L] >= 0 over the layers of some stages."""

    def hint(self, boundaries: Sequence[int]) -> None:
        """Suggest a split."""

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Boundaries in a solution."""


class Order(Protocol):
    """Node groups of the slots, and what their order costs."""

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do; exactly one does."""

    def nodes(self, stage: int) -> Sequence[tuple[int, Literal]]:
        """Node groups of the nodes that may overlap a stage, and whether they do."""

    def column(self, replica: int) -> Hashable:
        """Equal for replicas with equal groups and transfers on every device."""

    def send(self, stage: int, replica: int, split: Split) -> Linear:
        """Transfer from a virtual stage to the next, ns."""

    def sync(self, device: int, split: Split) -> Linear:
        """Gradient sync of a device, ns."""

    def gather(self, device: int, split: Split) -> Linear:
        """Parameter gather of a device, ns."""

    def embedding(self) -> Linear:
        """All-reduce of the tied embeddings, ns."""

    def hint(self, order: Sequence[int]) -> None:
        """Suggest an order."""

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Node groups in node order in a solution."""


class Shares(Protocol):
    """Micro-batches of every replica."""

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""

    def hint(self, micro_batches: Sequence[int]) -> None:
        """Suggest shares."""

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Shares in a solution."""


@dataclass(frozen=True)
class Parts:
    """The three parts of a model: what it decides."""

    split: Split
    order: Order
    shares: Shares

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""
        self.split.hint(decisions.boundaries)
        self.order.hint(decisions.order)
        self.shares.hint(decisions.micro_batches)

    def extract(self, values: Sequence[float]) -> Decisions:
        """The decisions in a solution vector, which is indexed by variable."""
        return Decisions(
            self.order.extract(values), self.split.extract(values), self.shares.extract(values)
        )
