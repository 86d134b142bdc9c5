"""Models of all open configs as a method of `solve`: what engines say, and what is made of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from formulations.instance import Instance
from solver.backends.outcome import Outcome
from solver.options import Method, SolveOptions
from solver.result import Status, Termination
from solver.search import by_model
from solver.search.driver import solve
from solver.search.engines import Family, ModelEngine, model_engine
from solver.search.plan_search import PlanSearch
from tests.best_plans import check_verified
from tests.search.spaces import SPACES, cases
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.stage_degrees import meshed_instance, stage_instance

INFEASIBLE = Outcome(Status.INFEASIBLE, Termination.CLOSED, None, None, 0.0, None)


def blind(model: Any, options: SolveOptions) -> Outcome:
    """An engine that finds no plan, whatever there is."""
    return INFEASIBLE


@pytest.mark.parametrize("first_plans", [False, True])
def test_bug_a_config_was_closed_by_the_word_of_highs_alone(
    first_plans: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Called infeasible where there is a plan: its configuration stays open, and a line says so.

    HiGHS did so of steps of 0.12 s; without plans to start from there was no plan at all, and with
    a poor one to start from it was optimal.
    """
    instance, options = random_instance(0), SolveOptions(method="milp")
    best = solve(instance).step_time_ns
    assert best is not None
    engine = replace(model_engine("milp"), run=blind)
    monkeypatch.setattr(by_model, "model_engine", lambda family: engine)
    start = None
    if first_plans:
        narrow = instance.but(search={"pipeline_parallel": (1,)})
        poor = solve(narrow)
        assert poor.plan is not None
        assert poor.step_time_ns is not None
        assert poor.step_time_ns > best
        start = poor.plan, poor.step_time_ns
    monkeypatch.setattr(PlanSearch, "first_plans", lambda *_: None)
    result = solve(instance, options, start=start)
    assert result.status is (Status.FEASIBLE if first_plans else Status.UNKNOWN)
    assert (result.bound or 0) <= best
    assert any(record.reason == "open" for record in result.log.configs)
    assert f"one of {best} ns is; a configuration stays open" in caplog.text


def test_what_both_say_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the best plan to start from nothing is left, as exhaustive search confirms."""
    instance = random_instance(0)
    exact = solve(instance)
    assert exact.plan is not None
    assert exact.step_time_ns is not None
    engine = replace(model_engine("milp"), run=blind)
    monkeypatch.setattr(by_model, "model_engine", lambda family: engine)
    start = exact.plan, exact.step_time_ns
    result = solve(instance, SolveOptions(method="milp"), start=start)
    assert (result.status, result.bound) == (Status.OPTIMAL, exact.bound)


def test_an_engine_that_counts_in_integers_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT is a witness of its own: nobody is asked whether its proofs hold."""

    def asked(*question: object) -> None:
        raise AssertionError

    monkeypatch.setattr(by_model, "enumerate_config", asked)
    instance = random_instance(0)
    assert solve(instance, SolveOptions(method="cpsat")).status is Status.OPTIMAL


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_trouble_leaves_configs_open(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that is neither a solution nor a proof: the plans that were known, and no proof."""

    def troubled(family: Family) -> ModelEngine:
        told = Outcome(Status.UNKNOWN, Termination.UNFINISHED, None, None, 0.0, None, "odd")
        return replace(model_engine(family), run=lambda model, options: told)

    monkeypatch.setattr(by_model, "model_engine", troubled)
    monkeypatch.setattr(PlanSearch, "first_plans", lambda *_: None)
    result = solve(random_instance(0), SolveOptions(method=method))
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.UNFINISHED)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize(("name", "seed"), cases(3))
def test_models_find_what_the_search_finds(name: str, seed: int, method: Method) -> None:
    """And prove it, whatever the plan space holds; in money for odd seeds; verify accepts it."""
    instance = SPACES[name].make(seed)
    if seed % 2:
        instance = instance.but(objective={"minimize": "cost_per_step"})
    options = SolveOptions(method=method)
    exact, result = solve(instance), solve(instance, options)
    assert (result.status, result.objective) == (exact.status, exact.objective)
    check_verified(result, options)


@pytest.mark.parametrize("make", [stage_instance, meshed_instance])
@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("seed", one_each(range(60), 60))
def test_models_find_the_best_degrees_of_stages(
    seed: int, method: Method, make: Callable[[int], Instance]
) -> None:
    """A part of the model for every layout; the log is proved again."""
    small = {"pipeline_parallel": (2 + seed % 2,), "data_parallel": (1 + seed // 2 % 2,)}
    instance, options = make(seed).but(search=small), SolveOptions(method=method)
    exact, result = solve(instance), solve(instance, options)
    assert (result.status, result.objective) == (exact.status, exact.objective)
    check_verified(result, options)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_bug_configs_without_a_layout_stayed_open(method: Method) -> None:
    """Nodes of four GPUs and one have no two stages of two replicas each: no part of a model."""
    small = {"pipeline_parallel": (2,), "data_parallel": (2,)}
    result = solve(stage_instance(2).but(search=small), SolveOptions(method=method))
    assert result.status is Status.INFEASIBLE
