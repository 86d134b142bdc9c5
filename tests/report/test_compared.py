"""Answers side by side: every figure of both, differences in one unit, gains as proved."""

from dataclasses import replace

import pytest

from solver.comparison import Answer, Comparison, Evaluation, Finding
from solver.document import PlanDocument
from solver.files import sealed
from solver.plan_figures import costs_of
from solver.report.compared import (
    comparison_json,
    comparison_text,
    difference,
    evaluation_json,
    evaluation_text,
    explanation,
    gain_text,
)
from solver.result import Status, Termination
from solver.simulate import simulate_step
from tests.certified_cases import CASES
from tests.command_line import printed
from tests.hand_made import pipelined_result
from tests.report.shown import PLANS, drawn, plan, stored


def rows_of(text: str) -> dict[str, list[str]]:
    """Cells behind the first of every line of a table."""
    lines = (line.strip().split("  ") for line in text.splitlines())
    return {line[0]: [cell.strip() for cell in line[1:] if cell] for line in lines if line[0]}


@pytest.mark.parametrize("name", PLANS)
def test_differences_of_small_plans(name: str) -> None:
    """Every figure of both, with those of the critical path."""
    assert drawn(*difference(plan(PLANS[0]), plan(name), (PLANS[0], name))) in stored(name)


def test_difference_of_two_plans() -> None:
    """Half the step time is -50 %; equal figures differ by none; what is 0 in both has no row."""
    first = CASES["pipelined"]()
    assert first.step_time_s is not None
    half = first.step_time_s / 2
    second = first.but(step_time_s=half, mfu=(first.mfu or 0) + 0.01, cost_usd_per_step=0.0)
    rows = rows_of(printed(*difference(first, second, ("a", "b"))))
    assert rows["step time"][2].endswith("(-50.0 %)")
    assert rows["MFU"][2] == "+1.0 points"
    assert rows["fullest GPU"][2] == "none"
    assert rows["money per step"][1:] == ["0.00 USD", rows["money per step"][2]]
    assert "money per useful sequence" not in rows
    free = [plan.but(cost_usd_per_step=0.0) for plan in (first, second)]
    assert "money per step" not in printed(*difference(free[0], free[1], ("a", "b")))


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


def test_changes_stand_in_the_order_of_what_they_save() -> None:
    """Most first; those without a plan at the end."""
    document = CASES["pipelined"]()
    answers = [
        Answer("none", Status.INFEASIBLE),
        Answer("small", Status.OPTIMAL, 2.0, 0.1, 0.1),
        Answer("large", Status.OPTIMAL, 1.0, 0.5, 0.5),
    ]
    text = printed(*explanation(document, simulate_step(costs_of(document)), answers))
    assert [text.index(name) for name in ("large", "small ", "none ")] == sorted(
        text.index(name) for name in ("large", "small ", "none ")
    )
    assert "saved: time per sequence against it, as proved" in text


def over(document: PlanDocument) -> PlanDocument:
    """The plan with 1 GiB more on stage 0 than its limit."""
    replicas = []
    for replica in document.replicas:
        stage = replica.stages[0]
        full = stage.but(memory_bytes=stage.memory_limit_bytes + (1 << 30))
        replicas.append(replica.but(stages=(full, *replica.stages[1:])))
    return sealed(document.but(replicas=tuple(replicas)))


def test_plan_that_is_run_says_which_limits_it_breaks(document: PlanDocument) -> None:
    """Stages over memory by GPUs, limits of the instance, the best plan and single changes."""
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
    text = printed(*evaluation_text(over(document), step, evaluation))
    assert "over memory   fast-0: 0-1: 1.0" in text
    assert "over limit    instance.limits.max_step_time_s: too long" in text
    assert "replicas[0]" not in text
    assert "distance      50.0 % slower than it; at most 50.0 % slower than any plan" in text
    assert "most brings   other degrees, alone: 25.0 % saved" in text
    assert "does not fit" in text
    fields = evaluation_json(document, evaluation)
    assert (fields["fits"], len(document.replicas) * 2) == (False, len(fields["memory"]))  # type: ignore[arg-type]
    equal = Evaluation(objective=best.objective, broken=(), best=best)
    text = printed(*evaluation_text(document, step, equal))
    assert "no better plan was found; at most 0 % slower than any " in text
