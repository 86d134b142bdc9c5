"""Distinct values and rows are numpy's."""

import numpy as np
import pytest

from solver.graph.problem import distinct, distinct_rows


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (40, 1), (60, 4), (30, 9)])
def test_distinct_values_and_rows_are_those_of_numpy(shape: tuple[int, int]) -> None:
    """Random matrices with many equal rows, negative numbers among them."""
    rows = np.random.default_rng(1).integers(-1, 2, shape)
    assert np.array_equal(distinct(rows), np.unique(rows))
    assert np.array_equal(distinct_rows(rows), np.unique(rows, axis=0))
