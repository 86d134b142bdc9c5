"""Tests of formulations.models.hot_switch: tours in any order."""

from itertools import product

import pytest

from formulations.lengths.problem import Mixed, Rows
from formulations.lengths.tour import step_ns
from formulations.models.hot_switch import HotSwitch
from solver.backends import cpsat
from solver.lengths.choose import ascending
from solver.options import SolveOptions
from solver.result import Status
from tests.mixed_lengths import free_tours, least_ns, random_mixed, tour_ns
from tests.seeds import few_and_many
from tests.twins import fix

MOST_NS = 1 << 40


def every(mixed: Mixed) -> list[tuple[int, int]]:
    """All strategies with all atoms: none of whose sequences is divided."""
    return list(product(range(len(mixed.strategies)), range(len(mixed.atoms))))


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(24), 12))
def test_the_model_finds_the_best_of_all_tours(seeds: range, rows: Rows) -> None:
    """Its optimum, its tour and brute force over sets, orders and anchors agree."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        built = HotSwitch(mixed, MOST_NS, every(mixed))
        outcome = cpsat.run(built.model.native, SolveOptions())
        best_ns = least_ns(mixed, free_tours(mixed))
        if best_ns is None:
            assert outcome.status is Status.INFEASIBLE
            continue
        assert outcome.values is not None
        assert outcome.objective == outcome.bound == best_ns
        tour = built.extract(outcome.values)
        assert tour_ns(mixed, tour) == step_ns(mixed, tour) == best_ns


def test_a_hint_is_a_solution() -> None:
    """What the dynamic program found is a solution of the model, at its own cost."""
    for seed in range(4):
        mixed = random_mixed(seed)
        tour = ascending(mixed)
        assert tour is not None
        built = HotSwitch(mixed, MOST_NS, every(mixed))
        fix(built.model, built, tour)
        outcome = cpsat.run(built.model.native, SolveOptions())
        assert outcome.objective == step_ns(mixed, tour)
