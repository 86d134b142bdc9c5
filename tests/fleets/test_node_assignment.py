"""Assignments equal the best of all permutations."""

from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.fleets.node_assignment import FORBIDDEN, Array, cheapest, least_largest


@st.composite
def costs(draw: st.DrawFn) -> Array:
    """Up to four rows, up to two columns more, some places forbidden."""
    rows = draw(st.integers(0, 4))
    columns = rows + draw(st.integers(0, 2))
    entries = st.integers(-1, 9)
    drawn = draw(st.lists(entries, min_size=rows * columns, max_size=rows * columns))
    return np.array(drawn, dtype=np.int64).reshape(rows, columns)


def all_costs(table: Array) -> list[list[int]]:
    """Costs of the rows in every allowed assignment."""
    rows, columns = table.shape
    found = [
        [int(table[row, column]) for row, column in enumerate(chosen)]
        for chosen in permutations(range(columns), rows)
    ]
    return [each for each in found if FORBIDDEN not in each]


@settings(max_examples=80, deadline=None)
@given(costs())
def test_cheapest_equals_the_best_permutation(table: Array) -> None:
    """The sum is the least, columns differ, and None means that there is no assignment."""
    every, chosen = all_costs(table), cheapest(table)
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert len(set(chosen.tolist())) == len(table)
        own = table[np.arange(len(table)), chosen]
        assert FORBIDDEN not in own
        assert own.sum() == min(map(sum, every))


@settings(max_examples=80, deadline=None)
@given(costs().filter(len))
def test_least_largest_equals_the_best_permutation(table: Array) -> None:
    """The largest cost is as small as in any assignment."""
    every = all_costs(table)
    assert least_largest(table) == min(map(max, every), default=None)


def test_more_rows_than_columns() -> None:
    """Two rows cannot share a column."""
    assert cheapest(np.zeros((2, 1), dtype=np.int64)) is None
