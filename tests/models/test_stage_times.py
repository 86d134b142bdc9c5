"""Least runs of layers that recompute for so long: what a stage holds decides its time."""

from itertools import combinations

import numpy as np
import pytest

from formulations.costs.stage_costs import NEVER
from formulations.models.stage_times import Run, least_runs


def test_least_runs_by_hand() -> None:
    """Layers 1 and 2 together take 5, all three 9, two others nothing; four have no room."""
    extra = np.zeros((5, 5), dtype=np.int64)
    extra[1, 3], extra[0, 3], extra[1, 4], extra[0, 4] = 5, 9, 5, NEVER
    assert least_runs(extra) == [Run(0, 3, 9), Run(0, 4, None), Run(1, 3, 5)]


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_least_run_within_a_stage_is_its_time(seed: int) -> None:
    """Of times that never fall when layers are added on either side."""
    rng, layers = np.random.default_rng(seed), 6
    extra = np.zeros((layers + 1, layers + 1), dtype=np.int64)
    for start, end in sorted(combinations(range(layers + 1), 2), key=lambda run: run[1] - run[0]):
        inner = max(extra[start + 1, end], extra[start, end - 1])
        extra[start, end] = inner + rng.integers(0, 3) * rng.integers(0, 2)
    runs = least_runs(extra)
    for start, end in combinations(range(layers + 1), 2):
        times = [run.extra_ns or 0 for run in runs if start <= run.start and run.end <= end]
        assert max(times, default=0) == extra[start, end]
    assert all(run.extra_ns for run in runs)
