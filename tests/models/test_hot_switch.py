"""Tests of formulations.models.hot_switch: tours in any order."""

import pytest

from formulations.instance.lengths import Rows
from formulations.lengths.tour import step_ns
from formulations.models.hot_switch import HotSwitch
from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status
from tests.conftest import present
from tests.mixed_lengths import free_tours, least_ns, random_mixed, tour_ns
from tests.recorded import Cases, recorded
from tests.seeds import each_of
from tests.twins import size_of

MOST_NS = 1 << 40


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(24), 24)
def test_the_model_finds_the_best_of_all_tours(seed: int, rows: Rows) -> None:
    mixed = random_mixed(seed, rows=rows)
    built = HotSwitch(mixed, MOST_NS)
    outcome = cpsat.run(built.model.native, SolveOptions(time_limit_s=10.0))
    best_ns = least_ns(mixed, free_tours(mixed))
    if best_ns is None:
        assert outcome.status is Status.INFEASIBLE
        return
    assert present(outcome.bound) <= best_ns <= present(outcome.objective)
    assert outcome.objective == outcome.bound
    tour = built.extract(present(outcome.values))
    assert tour_ns(mixed, tour) == step_ns(mixed, tour) == best_ns


@recorded("hot_switch")
def test_models_are_the_recorded_ones() -> Cases:
    for seed in range(16):
        mixed = random_mixed(seed, rows="padded" if seed % 2 else "packed")
        yield f"{seed}", size_of(HotSwitch(mixed, MOST_NS).model)
