"""Assignments equal the best of all permutations; sources share the work."""

from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.transition import Links
from solver.fleets.node_assignment import (
    FORBIDDEN,
    Array,
    cheapest,
    chosen_sources,
    least_largest,
)
from tests.random_fleets import cluster


@st.composite
def tables(draw: st.DrawFn) -> Array:
    """Up to four rows, up to two columns more, some places forbidden."""
    rows = draw(st.integers(0, 4))
    columns = rows + draw(st.integers(0, 2))
    entries = st.lists(st.integers(-1, 9), min_size=rows * columns, max_size=rows * columns)
    return np.array(draw(entries), dtype=np.int64).reshape(rows, columns)


@settings(max_examples=80, deadline=None)
@given(tables())
def test_no_permutation_is_better(table: Array) -> None:
    """By the sum, and by the largest cost; None means that there is no assignment."""
    rows, columns = table.shape
    every = [table[range(rows), chosen].tolist() for chosen in permutations(range(columns), rows)]
    every = [costs for costs in every if FORBIDDEN not in costs]
    chosen = cheapest(table)
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert len(set(chosen.tolist())) == rows
        costs = table[np.arange(rows), chosen]
        assert FORBIDDEN not in costs
        assert costs.sum() == min(map(sum, every))
    if rows:
        assert least_largest(table) == min(map(max, every), default=None)


def test_two_rows_cannot_share_a_column() -> None:
    assert cheapest(np.zeros((2, 1), dtype=np.int64)) is None


def test_sources_share_the_work_where_that_is_faster() -> None:
    """Nodes 0 and 1 hold layers 0 and 1. 2 and 3 lack layer 0: each sends one, in a second.

    Node 2 lacks both: it receives in two seconds, from whomever.
    """
    links, held = Links(cluster(4)), {0: range(2), 1: range(2)}
    for wanted, sources in (([(2, 0), (3, 0)], [0, 1]), ([(2, 0), (2, 1)], [0, 0])):
        copies = chosen_sources(links, held, wanted, [10**9, 10**9])
        assert sorted(copy.source or 0 for copy in copies) == sources
