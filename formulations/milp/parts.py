"""The parts of a MILP model, each fixed or free."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import pulp

from formulations.costs.tables import Array
from formulations.decisions import Decisions
from formulations.milp.big_m import Intervals
from formulations.milp.terms import Linear, Literal

#: A literal that is further from 0 and from 1 is neither.
FRACTION = 1e-5

Values = Mapping[str, int]  #: of the binary variables, by name
Assignment = Iterable[tuple[pulp.LpVariable, int]]


class Split(Protocol):
    """Layers of every stage."""

    def stage_sum(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of a stage."""

    def sum_up_to(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of all stages up to this one."""

    def begun(self, stage: int, layer: int) -> Literal:
        """Whether a stage starts at a layer or before it; stage S never does."""

    def intervals(self, stage: int) -> Intervals:
        """Runs of layers that the stage may be."""

    def assignment(self, boundaries: Sequence[int]) -> Assignment:
        """The binary variables of a split."""

    def extract(self, values: Values) -> tuple[int, ...]:
        """Boundaries in a solution."""


class Order(Protocol):
    """Node groups of the slots, and what their order costs."""

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do; exactly one does."""

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

    def assignment(self, order: Sequence[int]) -> Assignment:
        """The binary variables of an order."""

    def extract(self, values: Values) -> tuple[int, ...]:
        """Node groups in node order in a solution."""


class Shares(Protocol):
    """Micro-batches of every replica."""

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""

    def assignment(self, micro_batches: Sequence[int]) -> Assignment:
        """The binary variables of shares."""

    def extract(self, values: Values) -> tuple[int, ...]:
        """Shares in a solution."""


@dataclass(frozen=True)
class Parts:
    """The three parts of a model: what it decides."""

    split: Split
    order: Order
    shares: Shares

    def assignment(self, decisions: Decisions) -> Assignment:
        """The binary variables that stand for decisions."""
        return chain(
            self.split.assignment(decisions.boundaries),
            self.order.assignment(decisions.order),
            self.shares.assignment(decisions.micro_batches),
        )

    def extract(self, values: Mapping[str, float]) -> Decisions | None:
        """The decisions in a solution, by names of variables; None if it has none.

        Literals are rounded, unless they are fractional, and must be what the decisions make them.
        """
        rounded = {name: round(value) for name, value in values.items()}
        decisions = Decisions(
            self.order.extract(rounded), self.split.extract(rounded), self.shares.extract(rounded)
        )
        pairs = self.assignment(decisions)
        stands = all(abs(values[variable.name] - value) < FRACTION for variable, value in pairs)
        return decisions if stands else None
