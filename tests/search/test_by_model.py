"""Models of all open shapes as a method of `solve`: what engines say, and what is made of it."""

from dataclasses import replace
from typing import Any

import pytest

from solver.backends.outcome import Outcome
from solver.options import Method, SolveOptions
from solver.result import Status, Termination
from solver.search import by_model
from solver.search.driver import solve
from solver.search.engines import Family, ModelEngine, model_engine
from solver.search.plan_search import PlanSearch
from tests.small_instances import random_instance

INFEASIBLE = Outcome(Status.INFEASIBLE, Termination.CLOSED, None, None, 0.0, None)


def blind(model: Any, options: SolveOptions) -> Outcome:
    """An engine that finds no plan, whatever there is."""
    return INFEASIBLE


@pytest.mark.parametrize("first_plans", [False, True])
def test_bug_a_shape_was_closed_by_the_word_of_highs_alone(
    first_plans: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Called infeasible where there is a plan: its shape stays open, and a line says so.

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
    assert any(record.reason == "open" for record in result.log.shapes)
    assert f"one of {best} ns is; a shape stays open" in caplog.text


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

    monkeypatch.setattr(by_model, "enumerate_shape", asked)
    instance = random_instance(0)
    assert solve(instance, SolveOptions(method="cpsat")).status is Status.OPTIMAL


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_trouble_leaves_shapes_open(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that is neither a solution nor a proof: the plans that were known, and no proof."""

    def troubled(family: Family) -> ModelEngine:
        told = Outcome(Status.UNKNOWN, Termination.UNFINISHED, None, None, 0.0, None, "odd")
        return replace(model_engine(family), run=lambda model, options: told)

    monkeypatch.setattr(by_model, "model_engine", troubled)
    monkeypatch.setattr(PlanSearch, "first_plans", lambda *_: None)
    result = solve(random_instance(0), SolveOptions(method=method))
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.UNFINISHED)
