"""Models of all open configs as a method of `solve`: what engines say, and what is made of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from formulations.instance import Instance
from formulations.plan import Plan
from solver.backends.outcome import Outcome
from solver.options import Method, SolveOptions
from solver.result import Status, Termination
from solver.search import by_model
from solver.search.critical_path import Family, ModelEngine, model_engine
from solver.search.driver import solve
from solver.search.plan_search import PlanSearch
from tests.best_plans import check_verified
from tests.conftest import present
from tests.models.test_degrees import varied
from tests.random_configs import slower
from tests.search.spaces import SPACES, cases
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.stage_degrees import meshed_instance, stage_instance

INFEASIBLE = Outcome(Status.INFEASIBLE, Termination.CLOSED, None, None, 0.0, None)
TROUBLE = Outcome(Status.UNKNOWN, Termination.UNFINISHED, None, None, 0.0, None, "odd")


def answer_always(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:

    def engine(family: Family) -> ModelEngine:
        return replace(model_engine(family), run=lambda model, options: outcome)

    monkeypatch.setattr(by_model, "model_engine", engine)
    monkeypatch.setattr(PlanSearch, "first_plans", lambda *_: None)


def best_plan(instance: Instance) -> tuple[Plan, int]:
    result = solve(instance)
    return present(result.plan), present(result.step_time_ns)


@pytest.mark.parametrize("first_plans", [False, True])
def test_bug_a_config_was_closed_by_the_word_of_highs_alone(
    first_plans: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Called infeasible where there is a plan: its configuration stays open, and a line says so.

    HiGHS did so of steps of 0.12 s; without plans to start from there was no plan at all, and with
    a poor one to start from it was optimal. With the best one nothing is left.
    """
    instance, options = random_instance(0), SolveOptions(method="milp")
    plan, best = best_plan(instance)
    poor = best_plan(instance.but(search={"pipeline_parallel": (1,)}))
    assert poor[1] > best
    answer_always(INFEASIBLE, monkeypatch)
    result = solve(instance, options, start=poor if first_plans else None)
    assert result.status is (Status.FEASIBLE if first_plans else Status.UNKNOWN)
    assert (result.bound or 0) <= best
    assert any(record.reason == "open" for record in result.log.configs)
    assert f"one of {best} ns is; a configuration stays open" in caplog.text
    result = solve(instance, options, start=(plan, best))
    assert (result.status, result.bound) == (Status.OPTIMAL, best)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_trouble_leaves_configs_open(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_always(TROUBLE, monkeypatch)
    result = solve(random_instance(0), SolveOptions(method=method))
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.UNFINISHED)


def check_equal(instance: Instance, *methods: Method) -> None:
    """The models prove what the search proves; verify accepts what the first one says."""
    exact = solve(instance)
    for n, method in enumerate(methods):
        options = SolveOptions(method=method)
        result = solve(instance, options)
        assert (result.status, result.objective) == (exact.status, exact.objective), method
        if n == 0:
            check_verified(result, options)


@pytest.mark.parametrize(("name", "seed"), cases())
def test_models_find_what_the_search_finds(name: str, seed: int) -> None:
    """Whatever the plan space holds; in money for odd seeds."""
    minimize = {"minimize": "cost_per_step"} if seed % 2 and name != "spot" else {}
    check_equal(SPACES[name](seed).but(objective=minimize), "cpsat", "milp")


def test_bug_money_of_long_steps_left_64_bits() -> None:
    """Many configurations of an hour and more: CP-SAT refused their sum, each times its weight."""
    check_equal(slower(varied(1), 100), "cpsat")


@pytest.mark.parametrize("make", [stage_instance, meshed_instance])
@pytest.mark.parametrize("seed", one_each(range(60), 60))
def test_models_find_the_best_degrees_of_stages(seed: int, make: Callable[[int], Instance]) -> None:
    degrees = {"pipeline_parallel": (2 + seed % 2,), "data_parallel": (1 + seed // 2 % 2,)}
    check_equal(make(seed).but(search=degrees), "cpsat", "milp")


def test_bug_configs_without_a_layout_stayed_open() -> None:
    """Nodes of four GPUs and one have no two stages of two replicas each: no part of a model."""
    degrees = {"pipeline_parallel": (2,), "data_parallel": (2,)}
    check_equal(stage_instance(2).but(search=degrees), "cpsat", "milp")
