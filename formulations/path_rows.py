"""For which replicas a model has a row for a path of the operation graph."""

from collections.abc import Hashable, Iterator
from typing import Any, Protocol

from formulations.paths import PathCut
from formulations.plan import Shape
from formulations.schedules import SCHEDULES


class _Order(Protocol):
    def column(self, replica: int) -> Hashable: ...


class _Shares(Protocol):
    def at_least(self, replica: int, count: int) -> Any: ...


def path_rows(
    cut: PathCut, shape: Shape, order: _Order, shares: _Shares
) -> Iterator[tuple[int, Any, Any]]:
    """Replicas that the path may hold for: if they reach its micro-batches, and have no more.

    Where it holds for larger shares too, the first that can reach it of replicas with equal
    columns stands for all: their free shares are in descending order. So none has too many.
    """
    prefixes = SCHEDULES[shape.schedule].prefixes
    columns: set[Hashable] = set()
    for r in range(shape.dp):
        reached = shares.at_least(r, cut.micro_batches)
        more = 0 if prefixes else shares.at_least(r, cut.micro_batches + 1)
        column = order.column(r)
        never = isinstance(reached, int) and not reached
        if not (never or column in columns or (isinstance(more, int) and more)):
            columns.update({column} if prefixes else ())
            yield r, reached, more
