"""Bounds by the largest term: below every path, and no path below the cutoff loses an edge."""

from dataclasses import replace

import numpy as np
import pytest

from solver.enumeration.classes import by_class
from solver.enumeration.completion import tighten
from solver.enumeration.engine import solve_split
from solver.enumeration.layered import build_layers
from solver.enumeration.problem import SplitProblem
from tests.seeds import one_each
from tests.solver.test_enumeration import NO_CUTOFF, random_chain


def charged_chain(seed: int) -> tuple[SplitProblem, int]:
    """A chain whose stages are charged, and what that is in all."""
    problem = random_chain(seed)
    charges = np.random.default_rng(seed).integers(0, 200, problem.num_stages)
    stages = [
        replace(stage, charge=np.array([charge]))
        for stage, charge in zip(problem.stages, charges, strict=True)
    ]
    return replace(problem, stages=tuple(stages)), int(charges.sum())


@pytest.mark.parametrize("seed", one_each(range(60), 4))
def test_charges_are_added_to_the_step_time(seed: int) -> None:
    """The same split is the best, and costs the charges more."""
    plain = solve_split(random_chain(seed), NO_CUTOFF)
    charged, added = charged_chain(seed)
    found = solve_split(charged, NO_CUTOFF)
    assert plain.step_time_ns is not None
    assert found.step_time_ns == plain.step_time_ns + added


@pytest.mark.parametrize("seed", one_each(range(60), 4))
def test_the_best_path_stays_below_the_cutoff(seed: int) -> None:
    """With the optimum just allowed, the bound is no higher, and its edges are all useful."""
    problem, _ = charged_chain(seed)
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
