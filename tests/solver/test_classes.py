"""Bounds by the largest term: below every path, and no path below the cutoff loses an edge."""

import pytest

from solver.bounds.classes import by_class
from solver.bounds.completion import tighten
from solver.enumeration.engine import solve_split
from solver.layered.graph import build_layers
from tests.seeds import one_each
from tests.solver.test_enumeration import NO_CUTOFF, random_chain


@pytest.mark.parametrize("seed", one_each(range(60), 4))
def test_the_best_path_stays_below_the_cutoff(seed: int) -> None:
    """With the optimum just allowed, the bound is no higher, and its edges are all useful."""
    problem = random_chain(seed)
    best = solve_split(problem, NO_CUTOFF)
    assert best.step_time_ns is not None
    assert best.split is not None
    cutoff = best.step_time_ns + 1
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    assert layers is not None
    bounds = by_class(problem, layers, cutoff)
    assert bounds.bound_ns <= best.step_time_ns
    for k, (edges, useful) in enumerate(zip(layers, bounds.useful, strict=True)):
        own = (edges.start == best.split[k]) & (edges.end == best.split[k + 1])
        assert (useful & own).any()
