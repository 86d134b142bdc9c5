"""Which sequences of a step lie in which row of which replica, and what that takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from formulations.lengths.problem import Replica, Rows, Strategy

#: Sequences of one row, as indices into the step's lengths.
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Rows of every replica, [replica][row]; a padded row holds one sequence."""

    rows: tuple[tuple[Row, ...], ...]


def row_ns(replica: Replica, tokens: Iterable[int]) -> int:
    """Time of a row that holds sequences of so many tokens on the replica's slowest stage, ns."""
    return sum(replica.time.sequence_ns(length) for length in tokens) + replica.time.per_row_ns


def pipeline_ns(stages: int, rows: Sequence[int]) -> int:
    """Time of a replica that runs rows of these times one after another, ns (PROBLEM section 8).

    The rows and, while the pipeline fills and drains, its longest row once per further stage.
    """
    return sum(rows) + (stages - 1) * max(rows, default=0)


def dispatch_ns(strategy: Strategy, lengths: Sequence[int], dispatch: Dispatch) -> int:
    """Time until the last replica has run its rows, ns."""
    return max(
        pipeline_ns(replica.stages, [row_ns(replica, (lengths[i] for i in row)) for row in rows])
        for replica, rows in zip(strategy.replicas, dispatch.rows, strict=True)
    )


def is_dispatch(strategy: Strategy, lengths: Sequence[int], rows: Rows, dispatch: Dispatch) -> bool:
    """Whether every sequence lies in one row, and no row is longer than its replica takes."""
    dealt = sorted(i for own in dispatch.rows for row in own for i in row)
    return dealt == list(range(len(lengths))) and all(
        sum(lengths[i] for i in row) <= replica.longest_row and (rows == "packed" or len(row) == 1)
        for replica, own in zip(strategy.replicas, dispatch.rows, strict=True)
        for row in own
    )
