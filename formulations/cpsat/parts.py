"""The parts of a model, each fixed or free, and the decisions that they stand for."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from formulations.costs.tables import Array, CostTables
from formulations.cpsat.terms import Linear, Literal
from formulations.instance import Instance
from formulations.plan import Plan, uniform_plan


@dataclass(frozen=True)
class Decisions:
    """What is chosen inside a shape: node groups in order, p + 1 boundaries, R shares."""

    order: tuple[int, ...]
    boundaries: tuple[int, ...]
    micro_batches: tuple[int, ...]

    def plan(self, tables: CostTables) -> Plan:
        """The plan that they make of the shape."""
        return uniform_plan(
            tables.instance, tables.shape, self.order, self.boundaries, self.micro_batches
        )


def decisions_of(instance: Instance, plan: Plan) -> Decisions:
    """The decisions of a plan whose replicas share one split."""
    groups = instance.cluster.node_groups
    return Decisions(
        order=tuple(groups[node] for node in plan.node_order),
        boundaries=(0, *(stage.layers[1] for stage in plan.replicas[0].stages)),
        micro_batches=tuple(replica.micro_batches for replica in plan.replicas),
    )


class Split(Protocol):
    """Layers of every stage."""

    def stage_sum(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of a stage."""

    def largest(self, stage: int, values: Array) -> Linear:
        """At least every one of `values` [L] >= 0 over the layers of a stage."""

    def hint(self, boundaries: Sequence[int]) -> None:
        """Suggest a split."""

    def extract(self, values: Sequence[int]) -> tuple[int, ...]:
        """Boundaries in a solution."""


class Order(Protocol):
    """Node groups of the slots, and what their order costs."""

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do; exactly one does."""

    def nodes(self, stage: int) -> Sequence[tuple[int, Literal]]:
        """Node groups of the nodes that may overlap a stage, and whether they do."""

    def column(self, replica: int) -> Hashable:
        """Equal for replicas with equal groups and transfers on every stage."""

    def send(self, stage: int, replica: int) -> Linear:
        """Transfer from a stage to the next, ns."""

    def sync(self, stage: int, split: Split) -> Linear:
        """Gradient sync of a stage, ns."""

    def gather(self, stage: int, split: Split) -> Linear:
        """Parameter gather of a stage, ns."""

    def embedding(self) -> Linear:
        """All-reduce of the tied embeddings, ns."""

    def hint(self, order: Sequence[int]) -> None:
        """Suggest an order."""

    def extract(self, values: Sequence[int]) -> tuple[int, ...]:
        """Node groups in node order in a solution."""


class Shares(Protocol):
    """Micro-batches of every replica."""

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""

    def hint(self, micro_batches: Sequence[int]) -> None:
        """Suggest shares."""

    def extract(self, values: Sequence[int]) -> tuple[int, ...]:
        """Shares in a solution."""
