"""Tests of formulations.models.hot_switch: tours in any order."""

from itertools import product

import pytest

from formulations.lengths.problem import Rows
from formulations.lengths.tour import step_ns
from formulations.models.cpsat import CpSat
from formulations.models.hot_switch import HotSwitch, _SetTime
from solver.backends import cpsat
from solver.lengths.choose import ascending
from solver.options import SolveOptions
from solver.result import Status
from tests.mixed_lengths import free_tours, least_ns, random_mixed, tour_ns
from tests.seeds import few_and_many
from tests.twins import fix, least_values

MOST_NS = 1 << 40


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(24), 12))
def test_the_model_finds_the_best_of_all_tours(seeds: range, rows: Rows) -> None:
    """Its optimum, its tour and brute force agree; a tour of the dynamic program is a solution."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        every = list(product(range(len(mixed.strategies)), range(len(mixed.atoms))))
        built, hinted = (HotSwitch(mixed, MOST_NS, every) for _ in range(2))
        outcome = cpsat.run(built.model.native, SolveOptions(time_limit_s=10.0))
        best_ns = least_ns(mixed, free_tours(mixed))
        if best_ns is None:
            assert outcome.status is Status.INFEASIBLE
            continue
        assert outcome.values is not None
        assert outcome.objective is not None
        assert outcome.bound is not None
        assert outcome.bound <= best_ns <= outcome.objective
        if seed != 9:  # where half a per cent stays open for minutes
            assert outcome.objective == outcome.bound
            tour = built.extract(outcome.values)
            assert tour_ns(mixed, tour) == step_ns(mixed, tour) == best_ns
        known = ascending(mixed)
        if known is not None and known.groups[0].strategy != known.anchor:  # else left out
            fix(hinted.model, hinted, known)
            fixed = cpsat.run(hinted.model.native, SolveOptions())
            assert fixed.objective == step_ns(mixed, known)


def test_levels_of_peaks_add_up() -> None:
    """Where atoms of 3 and of 8 run, the levels are 3 and 8 - 3."""
    model, part = CpSat(), object.__new__(_SetTime)
    part._model, part._runs = model, {k: model.literal(f"runs_{k}") for k in range(2)}
    for runs in part._runs.values():
        model.equal(0, runs, 1)
    assert least_values(model, [part._peak([3, 8])]) == [8]
