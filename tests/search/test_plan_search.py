"""The state of a search: what is told of it, and how it goes on near a good plan."""

import pytest

from formulations.plan import Configuration
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.driver import solve
from solver.search.plan_search import EFFORTS, PlanSearch, Progress
from tests.conftest import present
from tests.search.spaces import recorded_searches
from tests.small_instances import random_instance
from tests.stage_degrees import stage_instance

test_searches_are_the_recorded_ones = recorded_searches()


@pytest.mark.parametrize("seed", [2, 26])
def test_configs_near_the_best_by_group_lead_to_better_plans(seed: int) -> None:
    search = PlanSearch(stage_instance(seed), SolveOptions(gap=0.0))
    search.run({config for config in search.space if not config.per_stage})
    before = search.incumbents.best
    search.climb()
    after = present(search.incumbents.best)
    search.run()
    assert search.incumbents.best == after < present(before)


@pytest.mark.parametrize("seed", [0, 2, 26])
def test_second_best_is_between_what_is_proved_and_what_was_seen(seed: int) -> None:
    """The best of all other configurations, each searched alone, lies between both."""
    instance = random_instance(seed)
    search = PlanSearch(instance, SolveOptions())
    assert search.result(Termination.TIME_LIMIT).second_best is None
    search.first_plans(search.space)
    search.close()
    plan, objective = present(search.incumbents.known.plan), present(search.incumbents.best)
    second = present(search.result(Termination.CLOSED).second_best)
    assert second.config != plan.config
    optima: dict[Configuration, float] = {}
    for config in search.space:
        alone = PlanSearch(instance, SolveOptions(), space=iter([config]))
        alone.run()
        if (best := alone.incumbents.best) is not None:
            optima[config] = best / objective - 1
    del optima[plan.config]
    assert present(second.at_least) <= min(optima.values()) + 1e-12
    if second.config is not None:
        assert second.behind is not None
        assert second.behind >= optima[second.config] - 1e-12
        assert second.step_time_s == pytest.approx((1 + second.behind) * objective / 1e9)


def test_a_search_below_a_cutoff_finds_nothing_at_it() -> None:
    """Just above the optimum the plan is found; at it the instance has none, and a bound says so.

    The cutoff is not taken for a plan's objective.
    """
    best_ns = present(solve(random_instance(0)).step_time_ns)
    for below, found_ns in ((best_ns + 1, best_ns), (best_ns, None)):
        search = PlanSearch(random_instance(0), SolveOptions(), below=below)
        search.close()
        result = search.result(Termination.TIME_LIMIT)
        assert result.step_time_ns == result.objective == found_ns
        assert (result.bound or 0) >= best_ns
        assert result.termination is Termination.CLOSED


def test_the_exact_method_takes_all_efforts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of configs whose stages share their degrees, then of all."""
    search, efforts = PlanSearch(stage_instance(2), SolveOptions()), list[int | None]()
    monkeypatch.setattr(search, "_round", lambda effort, among: efforts.append(effort))
    search.close()
    assert efforts == [*EFFORTS, *EFFORTS]


def test_incumbent_and_bound_come_together() -> None:
    """Told after every configuration; bounds rise, incumbents fall, and in the end they meet.

    And before: of 2,048 nodes it takes a minute to list the configurations.
    """
    told = list[Progress]()
    result = solve(random_instance(3), SolveOptions(time_limit_s=600.0), told.append)
    bounds = [known.bound_ns or 0 for known in told]
    times = [known.incumbent_ns or float("inf") for known in told]
    assert bounds == sorted(bounds)
    assert times == sorted(times, reverse=True)
    totals = [known.configs_total for known in told]
    assert totals == [0] + [len(result.log.configs)] * (len(told) - 1)
    assert told[-1].incumbent_ns == result.step_time_ns == told[-1].bound_ns
    assert 0 < (told[-1].left_s or 0) <= 600
    history = result.log.history
    assert list(history) == sorted(history, key=lambda moment: moment.elapsed_s)
    shares = [moment.bound for moment in history if moment.bound is not None]
    assert shares[0] < shares[-1] == 1.0
    assert any(moment.step_time_s is not None for moment in history)


def test_bounds_of_money_are_no_times() -> None:
    told = list[Progress]()
    cheapest = random_instance(3).but(objective={"minimize": "cost_per_step"})
    assert solve(cheapest, None, told.append).status is Status.OPTIMAL
    assert {now.bound_ns for now in told} == {None}


def test_time_left_is_that_to_the_limit() -> None:
    """10 s of which 4 are over leave 6; none after it; without a limit there is no such time."""
    limits = [(4.0, 10.0), (14.0, 10.0), (4.0, None)]
    assert [Progress(1, 2, None, None, None, *s).left_s for s in limits] == [6.0, 0.0, None]


def test_bug_progress_of_a_search_without_a_plan_ended_in_a_traceback() -> None:
    """Where everything is refuted no bound is known: none is told."""
    told = list[Progress]()
    limited = random_instance(3).but(limits={"max_step_time_s": 1e-9})
    assert solve(limited, None, told.append).status is Status.INFEASIBLE
    assert [now.bound_ns for now in told] == [None] * len(told) != []
