"""Who takes which place: assignment of least cost, and of least largest cost."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]

#: Cost of what is not allowed.
FORBIDDEN = -1


def cheapest(costs: Array) -> Array | None:
    """[rows] a column for every row, all different, with the least sum; None if there is none.

    costs: [rows, columns] >= 0, or FORBIDDEN; rows <= columns. Shortest augmenting paths with
    potentials (Kuhn 1955; Jonker and Volgenant 1987), O(rows^2 columns).
    """
    rows, columns = costs.shape
    if rows > columns:
        return None
    worst = int(costs.max(initial=0)) + 1
    finite = np.where(costs == FORBIDDEN, worst * (rows + 1), costs)
    row_price = np.zeros(rows + 1, dtype=np.int64)
    column_price = np.zeros(columns + 1, dtype=np.int64)
    owner = np.zeros(columns + 1, dtype=np.int64)  # row of a column, from 1; 0: free
    for row in range(1, rows + 1):
        _augment(row, finite, row_price, column_price, owner)
    chosen = np.zeros(rows, dtype=np.int64)
    taken = np.flatnonzero(owner[1:])
    chosen[owner[1:][taken] - 1] = taken
    if (costs[np.arange(rows), chosen] == FORBIDDEN).any():
        return None
    return chosen


def _augment(row: int, costs: Array, row_price: Array, column_price: Array, owner: Array) -> None:
    """Gives `row` a column, moving others along a shortest path; column 0 stands for none."""
    num_columns = len(owner) - 1
    least = np.full(num_columns + 1, np.iinfo(np.int64).max)
    previous = np.zeros(num_columns + 1, dtype=np.int64)
    done = np.zeros(num_columns + 1, dtype=bool)
    owner[0], column = row, 0
    while owner[column]:
        done[column] = True
        current = owner[column]
        reduced = costs[current - 1] - row_price[current] - column_price[1:]
        better = ~done[1:] & (reduced < least[1:])
        least[1:][better] = reduced[better]
        previous[1:][better] = column
        following = int(np.where(done[1:], np.iinfo(np.int64).max, least[1:]).argmin()) + 1
        delta = least[following]
        row_price[owner[done]] += delta
        column_price[done] -= delta
        least[~done] -= delta
        column = following
    while column:
        before = int(previous[column])
        owner[column] = owner[before]
        column = before


def least_largest(costs: Array) -> int | None:
    """Least possible largest cost of a column for every row; None if no assignment is allowed."""
    levels = np.unique(costs[costs != FORBIDDEN])
    allowed = costs != FORBIDDEN
    least = bisect_left(levels, True, key=lambda level: _matches(allowed & (costs <= level)))
    return int(levels[least]) if least < len(levels) else None


def _matches(allowed: NDArray[np.bool_]) -> bool:
    """Whether every row can have an allowed column of its own (augmenting paths, Kuhn 1955)."""
    columns = [np.flatnonzero(row).tolist() for row in allowed]
    owner: dict[int, int] = {}

    def placed(row: int, tried: set[int]) -> bool:
        for column in columns[row]:
            if column not in owner:
                owner[column] = row
                return True
        for column in columns[row]:
            if column not in tried:
                tried.add(column)
                if placed(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    return all(placed(row, set()) for row in range(len(columns)))
