"""Sums and maxima over runs of layers, by hand."""

import numpy as np

from formulations.costs.intervals import interval_maxima, interval_sums


def test_sums_over_runs_of_layers() -> None:
    """Of [a, b) in rows a and columns b, of 5, 1 and 4; negative where b is before a."""
    expected = [[0, 5, 6, 10], [-5, 0, 1, 5], [-6, -1, 0, 4], [-10, -5, -4, 0]]
    assert interval_sums(np.array([5, 1, 4])).tolist() == expected
    several = interval_sums(np.array([[5, 1, 4], [1, 2, 3]]))
    assert several[0].tolist() == expected
    assert several[1, 0].tolist() == [0, 1, 3, 6]


def test_largest_of_runs_of_layers() -> None:
    """Of 5, 1 and 4; 0 where there are none."""
    expected = [[0, 5, 5, 5], [0, 0, 1, 4], [0, 0, 0, 4], [0, 0, 0, 0]]
    assert interval_maxima(np.array([5, 1, 4])).tolist() == expected
