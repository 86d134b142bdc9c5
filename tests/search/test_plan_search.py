"""The state of a search: what is told of it, and how it goes on near a good plan."""

import pytest

from formulations.plan import Configuration
from solver.options import SolveOptions
from solver.result import Termination
from solver.search.driver import solve
from solver.search.plan_search import EFFORTS, PlanSearch
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
        standing = search.standing()
        assert standing.step_time_ns == standing.objective == found_ns
        assert (standing.bound or 0) >= best_ns
        assert standing.open == ()


def test_the_exact_method_takes_all_efforts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of configs whose stages share their degrees, then of all."""
    search, efforts = PlanSearch(stage_instance(2), SolveOptions()), list[int | None]()
    monkeypatch.setattr(search, "_round", lambda effort, among: efforts.append(effort))
    search.close()
    assert efforts == [*EFFORTS, *EFFORTS]
