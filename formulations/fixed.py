"""The parts of a model that are given: a split, a node order, shares.

They offer what the free parts of any engine's models offer, with ints in place of variables, and
leave hints alone.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from formulations.costs.stage_places import placement_of
from formulations.costs.tables import Array, CostTables


@dataclass(frozen=True)
class Given:
    """What is given of the decisions inside a shape, and limits on them; what is None is decided.

    order: group index per node; boundaries: p + 1 layers; micro_batches: one per replica.
    largest_share: no replica need have more micro-batches than this.
    """

    order: Sequence[int] | None = None
    boundaries: Sequence[int] | None = None
    micro_batches: Sequence[int] | None = None
    largest_share: int | None = None
    max_step_time_ns: int | None = None


#: Without any limit.
ALL_FREE = Given()


class _Addable(Protocol):
    def __add__(self, other: int, /) -> Any: ...


Expression = TypeVar("Expression", bound=_Addable)
Expression_co = TypeVar("Expression_co", bound=_Addable, covariant=True)


class Summing(Protocol[Expression_co]):
    """A split, fixed or free, whose sums are expressions of some engine, or ints."""

    def stage_sum(self, stage: int, values: Array) -> Expression_co | int:
        """Sum of `values` [L] over the layers of a stage."""

    def sum_up_to(self, stage: int, values: Array) -> Expression_co | int:
        """Sum of `values` [L] over the layers of all stages up to this one."""


def message_ns(
    tables: CostTables, times_ns: Sequence[int], split: Summing[Expression], stage: int
) -> Expression | int:
    """Message from a stage to the next: of the times [K], that of the kind that the split makes it.

    The changes of the time from layer to layer add up to it.
    """
    if len(times_ns) == 1:
        return times_ns[0]
    behind = np.array(times_ns)[tables.message_kind[1:]]
    return split.sum_up_to(stage, np.diff(behind, prepend=0))


def device_sum(
    split: Summing[Expression], stages: Iterable[int], values: Array
) -> Expression | int:
    """Sum of `values` [L] over the layers of all chunks of a device."""
    first, *others = stages
    total: Any = split.stage_sum(first, values)
    for stage in others:
        total = total + split.stage_sum(stage, values)
    return cast(Expression, total)


class FixedSplit:
    """A split that is given; boundaries [S + 1]."""

    def __init__(self, boundaries: Sequence[int]) -> None:
        self.boundaries = tuple(boundaries)

    def _layers(self, stage: int) -> slice:
        return slice(self.boundaries[stage], self.boundaries[stage + 1])

    def stage_sum(self, stage: int, values: Array) -> int:
        """Sum of `values` [L] over the layers of a stage."""
        return int(values[self._layers(stage)].sum())

    def sum_up_to(self, stage: int, values: Array) -> int:
        """Sum of `values` [L] over the layers of all stages up to this one."""
        return int(values[: self.boundaries[stage + 1]].sum())

    def largest(self, stages: Iterable[int], values: Array) -> int:
        """Largest of `values` [L] over the layers of some stages."""
        return max(int(values[self._layers(stage)].max(initial=0)) for stage in stages)

    def begun(self, stage: int, layer: int) -> int:
        """Whether a stage starts at a layer or before it."""
        return int(self.boundaries[stage] <= layer)

    def intervals(self, stage: int) -> Array:
        """[1, 2] the only start and end that the stage may have."""
        return np.array([self.boundaries[stage : stage + 2]], dtype=np.int64)

    def hint(self, boundaries: Sequence[int]) -> None:
        """Nothing to suggest."""

    def assignment(self, boundaries: Sequence[int]) -> tuple[()]:
        """No variables."""
        return ()

    def extract(self, values: object) -> tuple[int, ...]:
        """The boundaries given."""
        return self.boundaries


class FixedOrder:
    """A node order that is given, as group indices, or a layout; its costs are `placement_of`."""

    def __init__(self, tables: CostTables, order: Sequence[int]) -> None:
        self.order, self._tables = tuple(order), tables
        self._dp = tables.shape.dp
        self._costs = placement_of(tables, order)
        groups = self._costs.group_of_slot.tolist()
        self._groups = [groups[k * self._dp :][: self._dp] for k in range(tables.shape.pp)]

    def types(self, slot: int) -> Sequence[tuple[int, int]]:
        """The node group that owns a slot."""
        return ((self._groups[slot // self._dp][slot % self._dp], 1),)

    def nodes(self, stage: int) -> Sequence[tuple[int, int]]:
        """The node groups of a stage."""
        return [(j, 1) for j in sorted(set(self._groups[stage]))]

    def column(self, replica: int) -> Hashable:
        """Groups and transfers of all devices of a replica."""
        return (
            tuple(row[replica] for row in self._groups),
            self._costs.send_ns[:, :, replica].tobytes(),
        )

    def send(self, stage: int, replica: int, split: Summing[Expression]) -> Expression | int:
        """Transfer from a stage to the next, ns."""
        times_ns = self._costs.send_ns[:, stage % self._tables.shape.pp, replica].tolist()
        return message_ns(self._tables, times_ns, split, stage)

    def sync(self, device: int, split: Summing[Expression]) -> Expression | int:
        """Gradient sync of a device, ns."""
        costs, stages = self._costs, self._tables.shape.stages_of(device)
        total = device_sum(split, stages, costs.sync_ns[device])
        total += int(costs.sync_latency_ns[device])
        return total

    def gather(self, device: int, split: Summing[Expression]) -> Expression | int:
        """Parameter gather of a device, ns."""
        costs, stages = self._costs, self._tables.shape.stages_of(device)
        total = device_sum(split, stages, costs.gather_ns[device])
        total += int(costs.gather_latency_ns[device])
        return total

    def embedding(self) -> int:
        """All-reduce of the tied embeddings, ns."""
        return self._costs.embedding_ns

    def hint(self, order: Sequence[int]) -> None:
        """Nothing to suggest."""

    def assignment(self, order: Sequence[int]) -> tuple[()]:
        """No variables."""
        return ()

    def extract(self, values: object) -> tuple[int, ...]:
        """The order given."""
        return self.order


class FixedShares:
    """Micro-batches per replica that are given."""

    def __init__(self, micro_batches: Sequence[int]) -> None:
        self.micro_batches = tuple(micro_batches)

    def choices(self, replica: int) -> Sequence[int]:
        """The one share of a replica."""
        return (self.micro_batches[replica],)

    def at_least(self, replica: int, count: int) -> int:
        """Whether a replica has `count` micro-batches or more."""
        return int(self.micro_batches[replica] >= count)

    def hint(self, micro_batches: Sequence[int]) -> None:
        """Nothing to suggest."""

    def assignment(self, micro_batches: Sequence[int]) -> tuple[()]:
        """No variables."""
        return ()

    def extract(self, values: object) -> tuple[int, ...]:
        """The shares given."""
        return self.micro_batches
