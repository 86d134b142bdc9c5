"""Configs with several chunks per device, all node orders at once: no plan is lost on the way."""

from collections.abc import Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.enumeration import by_device
from solver.enumeration.by_device import best_by_device
from solver.enumeration.engine import ConfigAnswer
from solver.graph import devices
from solver.graph.problem import Intervals
from solver.search.enumeration import after, enumerate_config
from tests.random_configs import random_optimum_ns, random_tables
from tests.seeds import few_and_many

NO_CUTOFF = 1 << 50


def answer(tables: CostTables, cutoff: int = NO_CUTOFF, asks: int = 10**6) -> ConfigAnswer:
    """Of a search that may ask so often whether to stop."""
    stop = after(asks, lambda: False)
    found = best_by_device(Intervals(tables), Placer(tables), cutoff, 0.0, stop)
    assert found is not None
    return found


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(50), 50))
def test_bounds_of_searches_cut_short_are_below_the_optimum(
    seeds: Sequence[int], zones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However early they stop, with single plans simulated; complete ones find the optimum."""
    monkeypatch.setattr(by_device, "FEW", 1)
    monkeypatch.setattr(by_device, "FIRST_HALVES", 1)
    monkeypatch.setattr(by_device, "HALVES_PER_STOP", 1)
    for seed in seeds:
        best = random_optimum_ns(seed, zones, "interleaved")
        tables = random_tables(seed, zones, "interleaved")
        if best is None:
            assert answer(tables).plan is None, seed
            continue
        for asks in (0, 3, 20):
            found = answer(tables, best + best // 10, asks)
            assert found.bound_ns <= best, seed
            assert (found.step_time_ns or best) >= best, seed
        whole = answer(tables, best + 1)
        assert (whole.step_time_ns, whole.bound_ns, whole.complete) == (best, best, True)


def test_graphs_that_are_too_big_are_left_to_single_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimum is found without the graph of devices."""
    tables = random_tables(1, schedule="interleaved")
    monkeypatch.setattr(devices, "MOST_EDGES", 0)
    assert best_by_device(Intervals(tables), Placer(tables), NO_CUTOFF, 0, lambda: False) is None
    found = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, lambda: False)
    assert (found.step_time_ns, found.complete) == (
        random_optimum_ns(1, False, "interleaved"),
        True,
    )
