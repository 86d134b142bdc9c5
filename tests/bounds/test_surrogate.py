"""Combinations of paths: never above the best split, whose edges they leave."""

import numpy as np
import pytest

from solver.bounds.latency_bottleneck import tighten
from solver.bounds.surrogate import _projected, combine, family_cuts
from solver.enumeration.engine import solve_split
from solver.graph.edges import build_layers
from tests.enumeration.test_engine import NO_CUTOFF, random_chain
from tests.seeds import one_each


@pytest.mark.parametrize("seed", one_each(range(60), 6))
def test_the_best_split_stays_below_the_cutoff(seed: int) -> None:
    """Both schedules, with a cutoff that just allows it; the bound is at least half of it."""
    problem = random_chain(seed)
    best = solve_split(problem, NO_CUTOFF)
    assert best.step_time_ns is not None
    assert best.split is not None
    cutoff = best.step_time_ns + 1
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    assert layers is not None
    found = combine(problem, layers, family_cuts(problem), cutoff, lambda: False)
    assert best.step_time_ns // 2 <= found.bound_ns <= best.step_time_ns
    for edges, useful, start, end in zip(
        layers, found.useful, best.split, best.split[1:], strict=False
    ):
        assert (useful & (edges.start == start) & (edges.end == end)).any()


def test_the_nearest_weights_add_up_to_one() -> None:
    """(1, 0.6, -1) less 0.3 is (0.7, 0.3), and nothing below 0."""
    assert _projected(np.array([1.0, 0.6, -1.0])) == pytest.approx([0.7, 0.3, 0.0])
