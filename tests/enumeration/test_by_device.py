"""Configs with several chunks per device, all node orders at once: no plan is lost on the way."""

from collections.abc import Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.enumeration import by_device
from solver.enumeration.by_device import best_by_device, best_by_stage
from solver.enumeration.engine import ConfigAnswer
from solver.graph import devices
from solver.graph.pipelines import StageDegrees
from solver.graph.problem import Intervals
from solver.interrupt import Stop, after
from solver.search.enumeration import enumerate_config
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, Questions, drawn_tables, staged_tables
from tests.random_configs import random_optimum_ns, random_tables
from tests.recorded import Cases, digest, recorded
from tests.seeds import few_and_many


def answer(
    costs: CostTables, cutoff: int = NO_CUTOFF, gap: float = 0.0, stop: Stop = lambda: False
) -> ConfigAnswer:
    known = present(best_by_device(Intervals(costs), Placer(costs), cutoff, gap, stop))
    return known


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(4, 54), 50))
def test_bounds_of_searches_cut_short_are_below_the_optimum(
    seeds: Sequence[int], zones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However early they stop, with single plans simulated; complete ones find the optimum."""
    monkeypatch.setattr(by_device, "FEW", 1)
    monkeypatch.setattr(by_device, "HALVES_PER_STOP", 1)
    for seed in seeds:
        best = random_optimum_ns(seed, zones, "interleaved")
        costs = random_tables(seed, zones, "interleaved")
        if best is None:
            assert answer(costs).plan is None, seed
            continue
        for asks in (0, 3, 20):
            known = answer(costs, best + best // 10, 0.0, after(asks, lambda: False))
            assert known.bound_ns <= best, seed
            assert (known.step_time_ns or best) >= best, seed
        known = answer(costs, best + 1)
        assert (known.step_time_ns, known.bound_ns, known.complete) == (best, best, True)


def test_bug_a_stopped_search_knew_no_plan_and_no_more_than_thinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first plan comes before all bounds; what was searched below lower cutoffs is proved."""
    monkeypatch.setattr(by_device, "FEW", 1)
    monkeypatch.setattr(by_device, "HALVES_PER_STOP", 1)
    costs, asked = random_tables(4, schedule="interleaved"), Questions()
    assert answer(costs, stop=asked).complete
    assert answer(costs, stop=after(0, lambda: False)).plan is not None
    stopped = answer(costs, stop=after(asked.number - 1, lambda: False))
    monkeypatch.setattr(by_device._Search, "search", lambda *_: False)
    assert not stopped.complete
    assert stopped.bound_ns > answer(costs).bound_ns


@recorded("by_device")
def test_work_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Bounds when stopped, plans and questions until it is done; also of stages by place."""
    monkeypatch.setattr(by_device, "FEW", 4)
    for name, costs in list((drawn_tables() | staged_tables()).items())[::4]:
        if costs.config.vpp == 1 and costs.by_place is None:
            continue
        asked, told, intervals = Questions(), list[object](), Intervals(costs)
        for stop, gap in ((asked, 0.0), (after(2, asked), 0.05), (after(6, asked), 0.0)):
            limit = costs.longest_ns // 2 if gap else NO_CUTOFF
            if costs.by_place is not None:
                known = best_by_stage(intervals, costs.by_place, limit, gap, stop)
            else:
                known = answer(costs, limit, gap, stop)
            told.append([known.step_time_ns, known.bound_ns, known.complete, digest(known.plan)])
        yield name, [asked.number, *told]


def test_graphs_that_are_too_big_are_left_to_single_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals = Intervals(random_tables(1, schedule="interleaved"))
    best = random_optimum_ns(1, False, "interleaved")
    monkeypatch.setattr(devices, "MOST_EDGES", 0)
    placer = Placer(intervals.tables)
    assert best_by_device(intervals, placer, NO_CUTOFF, 0, lambda: False) is None
    known = enumerate_config(intervals, NO_CUTOFF, 0.0, lambda: False)
    assert (known.step_time_ns, known.complete) == (best, True)


def test_too_many_arcs_of_stages_leave_a_config_open(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = staged_tables()["meshed_instance 1.0"]
    intervals, by_place = Intervals(costs), present(costs.by_place)
    number = sum(map(len, StageDegrees(intervals, by_place).arcs))
    for limit, complete in ((number, True), (number - 1, False)):
        monkeypatch.setattr(by_device, "MOST_ARCS", limit)
        known = best_by_stage(intervals, by_place, NO_CUTOFF, 0.0, lambda: False)
        assert known.complete == complete
