"""Answers side by side: every figure of both, differences in one unit, gains as proved."""

from dataclasses import replace

import pytest

from solver.comparison import Answer, Comparison, Evaluation, Finding
from solver.document import PlanDocument
from solver.plan_figures import costs_of
from solver.report.compared import (
    comparison_json,
    comparison_text,
    evaluation_text,
    gain_text,
)
from solver.result import Status, Termination
from solver.simulate import simulate_step
from tests.command_line import printed
from tests.hand_made import pipelined_result


def rows_of(text: str) -> dict[str, list[str]]:
    """Cells behind the first of every line of a table."""
    lines = (line.strip().split("  ") for line in text.splitlines())
    return {line[0]: [cell.strip() for cell in line[1:] if cell] for line in lines if line[0]}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer("x", Status.INFEASIBLE), "no plan"),
        (Answer("x", Status.UNKNOWN), "not reached in time"),
        (Answer("x", Status.FEASIBLE, 1.0, 0.1), "10.0 % at least, not reached in time"),
        (Answer("x", Status.OPTIMAL, 1.0, 0.1, 0.1004), "10.0 %"),
        (Answer("x", Status.OPTIMAL, 1.0, 0.0004, 0.1), "0 % to 10.0 %"),
        (Answer("x", Status.OPTIMAL, 1.0, -0.2, -0.1), "-20.0 % to -10.0 %"),
    ],
)
def test_gains_as_far_as_proved(answer: Answer, text: str) -> None:
    """What is no plan, not reached, or the same within 0.05 % is told apart."""
    assert gain_text(answer) == text


def findings(bound_ns: float) -> Comparison:
    """A heuristic with a plan of 3 ms, and an exact method that proves a bound."""
    ms = 10**6
    heuristic = Finding(
        "minmax", Status.FEASIBLE, Termination.HEURISTIC, None, 3 * ms, 3 * ms, 3.0 * ms, None, 0.5
    )
    stopped = replace(heuristic, method="exact", termination=Termination.TIME_LIMIT, bound=bound_ns)
    return Comparison(pipelined_result().instance, (heuristic, stopped))


def test_methods_side_by_side() -> None:
    """Step time and bound in the unit of the larger one, the gap, and how far from the bound."""
    rows = rows_of(printed(*comparison_text(findings(2e6))))
    assert rows["exact"] == [
        "feasible, time limit",
        "-",
        "3.000 ms",
        "2.000 ms",
        "33.3 %",
        "50.0 %",
        "0.500",
    ]
    assert rows["minmax"] == ["feasible", "-", "3.000 ms", "-", "-", "50.0 %", "0.500"]
    assert rows["verdict"] == ["no plan is below a proved bound, of which there is 1"]
    fields = comparison_json(findings(2e6))
    assert (fields["unit"], fields["objective"], fields["lower_bound"]) == ("s", 0.003, 0.002)
    clash = printed(*comparison_text(findings(4e6)))
    assert "contradictions: one of the methods is wrong" in clash


def test_plan_that_is_run_says_which_limits_it_breaks(document: PlanDocument) -> None:
    """Limits of the instance, the best plan and single changes."""
    step = simulate_step(costs_of(document))
    best = pipelined_result()
    assert best.objective is not None
    evaluation = Evaluation(
        objective=1.5 * best.objective,
        broken=("instance.limits.max_step_time_s: too long", "replicas[0]: too large"),
        best=best,
        changes=(
            Answer("other degrees", Status.OPTIMAL, 0.5, 0.25),
            Answer("more memory", Status.OPTIMAL, 0.5),
        ),
    )
    text = printed(*evaluation_text(document, step, evaluation))
    assert "over limit    instance.limits.max_step_time_s: too long" in text
    assert "replicas[0]" not in text
    assert "distance      50.0 % slower than it; at most 50.0 % slower than any plan" in text
    assert "most brings   other degrees, alone: 25.0 % saved" in text
    assert "does not fit" in text
