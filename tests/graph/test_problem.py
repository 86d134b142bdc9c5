"""Distinct values and rows are numpy's; states after a stage are counted."""

import numpy as np
import pytest

from solver.graph.all_orders import free_order
from solver.graph.problem import Intervals, distinct, distinct_rows
from tests.bounds.test_node_classes import two_groups
from tests.enumeration.test_engine import random_chain


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (40, 1), (60, 4), (30, 9)])
def test_distinct_values_and_rows_are_those_of_numpy(shape: tuple[int, int]) -> None:
    """Random matrices with many equal rows, negative numbers among them."""
    rows = np.random.default_rng(1).integers(-1, 2, shape)
    assert np.array_equal(distinct(rows), np.unique(rows))
    assert np.array_equal(distinct_rows(rows), np.unique(rows, axis=0))


def test_states_after_a_stage_of_two_slots() -> None:
    """On two nodes of one slot, on one and half of the node of two, or on that node."""
    placer = two_groups((2, 1), (1, 2), 2)
    problem = free_order(Intervals(placer.tables), placer, split=False)
    assert problem is not None
    assert [(arcs.num_states, arcs.alike) for arcs in problem.stages] == [(3, False)] * 2
    assert all(arcs.alike for arcs in random_chain(1).stages)  # of one lane
