"""What stages recompute and have room for, as the models' rows want it: runs of layers that cost.

The time that a stage recomputes for, see `formulations.costs.stage_costs`, never falls when layers
are added on either side. So it is at least e exactly if the stage holds one of the least runs
[a, b) that take e or more: those that take less without their first and without their last layer.
A stage holds [a, b) iff it starts at a or before, and the next one at b or later.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from formulations.costs.memory import Moments
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array


class Run(NamedTuple):
    """A stage with layers [start, end) recomputes for so long at least; None: it has no room."""

    start: int
    end: int
    extra_ns: int | None


class _Order(Protocol):
    def column(self, replica: int) -> Hashable: ...


class _Shares(Protocol):
    def choices(self, replica: int) -> Sequence[int]: ...


def alike(order: _Order, shares: _Shares, dp: int) -> list[tuple[list[int], Sequence[int]]]:
    """Replicas that recompute alike on every stage, with the shares that they may have.

    Those with equal groups and transfers and the same given share; a free share is each one's own.
    """
    found: dict[Hashable, list[int]] = {}
    for r in range(dp):
        choices = tuple(shares.choices(r))
        found.setdefault((order.column(r), choices if len(choices) == 1 else r), []).append(r)
    return [(replicas, shares.choices(replicas[0])) for replicas in found.values()]


def least_runs(extra_ns: Array) -> list[Run]:
    """The rows of one [n, n] matrix of times; NEVER where there is no room."""
    inner = np.zeros_like(extra_ns)
    inner[:-1] = extra_ns[1:]
    inner[:, 1:] = np.maximum(inner[:, 1:], extra_ns[:, :-1])
    rows = np.argwhere(np.triu(extra_ns > np.triu(inner), k=1)).tolist()
    times = [int(extra_ns[start, end]) for start, end in rows]
    return [
        Run(start, end, None if time >= NEVER else time)
        for (start, end), time in zip(rows, times, strict=True)
    ]


def stage_runs(
    stages: StageCosts, stage: int, group: int, shares: Sequence[int]
) -> Iterator[tuple[int, list[Run]]]:
    """The rows of a stage on a group for replicas with at least so many micro-batches, ascending.

    shares: those that a replica may have, ascending. With more of them nothing gets less.
    """
    known: set[Moments] = set()
    for m in shares:
        moments = stages.moments(stage, m)
        if moments not in known:
            known.add(moments)
            yield m, least_runs(stages.extra(group, stage, m))
