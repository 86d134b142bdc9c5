"""Findings side by side: contradictions are seen, agreement is not called one."""

from dataclasses import replace

import pytest

from solver.comparison import Comparison, Finding
from solver.report.compared import comparison_json
from solver.result import Status, Termination
from tests.small_instances import random_instance

PROOF = Finding(
    method="exact",
    status=Status.FEASIBLE,
    termination=Termination.TIME_LIMIT,
    config=None,
    step_time_ns=1250,
    judged_ns=1250,
    objective=1250.0,
    bound=1000.0,
    runtime_s=3.0,
)
PLAN = replace(
    PROOF, method="local", step_time_ns=1100, judged_ns=1100, objective=1100.0, bound=None
)


def compare(*findings: Finding) -> Comparison:
    """The findings on some instance."""
    return Comparison(random_instance(0), findings)


def test_plans_above_all_bounds_agree() -> None:
    """Also a plan that meets the bound, up to the noise of a product of floats."""
    met = replace(PLAN, objective=1000 * (1 - 1e-12), step_time_ns=1000, judged_ns=1000)
    assert compare(PROOF, PLAN, met).contradictions == ()


@pytest.mark.parametrize("first", [True, False])
def test_plan_below_the_bound_of_another_method_is_a_contradiction(first: bool) -> None:
    """1100 found, 1101 proved impossible; whichever ran first."""
    wrong = replace(PROOF, bound=1101.0)
    found = compare(*((wrong, PLAN) if first else (PLAN, wrong))).contradictions
    assert found == ("exact proves that no plan is below 1101, local has one of 1100",)


def test_plan_below_its_own_bound_is_a_contradiction() -> None:
    """A method may contradict itself."""
    assert compare(replace(PROOF, bound=1300.0)).contradictions == (
        "exact proves that no plan is below 1300, exact has one of 1250",
    )


def test_proof_that_there_is_no_plan_contradicts_every_plan() -> None:
    """Infeasible on one side, a plan on the other."""
    none = replace(PROOF, status=Status.INFEASIBLE, step_time_ns=None, objective=None, bound=None)
    assert compare(none, PLAN).contradictions == (
        "exact proves that there is no plan, local has one",
    )
    assert compare(none, replace(none, method="milp")).contradictions == ()


def test_plan_that_the_simulator_values_otherwise_is_a_contradiction() -> None:
    """Another step time, or memory that does not suffice."""
    assert "1101 ns simulated" in compare(replace(PLAN, judged_ns=1101)).contradictions[0]
    assert "does not fit" in compare(replace(PLAN, judged_ns=None)).contradictions[0]


def test_distances_are_taken_from_the_best_bound() -> None:
    """Bounds 1000 and 1050: own gap 1 - 1000/1250 = 20 %, 1100 is 50/1050 above the best."""
    comparison = compare(PROOF, PLAN, replace(PROOF, method="milp", bound=1050.0))
    assert PROOF.gap == pytest.approx(0.2)
    assert PLAN.gap is None
    assert comparison.bound == 1050
    assert comparison.objective == 1100
    assert comparison.above(PLAN) == pytest.approx(50 / 1050)


def test_time_is_given_in_seconds() -> None:
    """1100 ns are 1.1e-6 s."""
    found = comparison_json(compare(PLAN))
    assert (found["unit"], found["objective"]) == ("s", pytest.approx(1.1e-6))


def test_money_is_given_in_dollars_per_step() -> None:
    """3.6e12 ns at 1 USD/h are one hour: 1 USD."""
    instance = random_instance(0)
    objective = instance.objective.but(minimize="cost_per_step")
    dear = replace(PLAN, objective=3.6e12)
    found = comparison_json(Comparison(instance.but(objective=objective), (dear,)))
    assert (found["unit"], found["objective"]) == ("USD", pytest.approx(1))


def test_optimal_with_a_gap_is_a_contradiction() -> None:
    """1250 is 20 % above 1000: fine if 25 % was asked for, not if 10 % was."""
    said = replace(PROOF, status=Status.OPTIMAL, requested_gap=0.1)
    [found] = compare(said).contradictions
    assert found.startswith("exact: optimal by its own account, with gap 0.2")
    assert compare(replace(said, requested_gap=0.25)).contradictions == ()
