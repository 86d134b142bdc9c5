"""Words of a plan say what the plan file says."""

import pytest

from solver.document import PlanDocument
from solver.report.text import outcome, solution_text
from solver.result import Infeasibility, OtherTarget, Status, Termination
from tests.command_line import printed
from tests.hand_made import document_of, planless_result
from tests.report.shown import PLANS, report_on, stored


@pytest.mark.parametrize("name", PLANS)
def test_words_of_small_plans(name: str) -> None:
    """What `show`, `solve` and `diff` print, line by line."""
    assert report_on(name) == stored(name)


def test_text_without_plan_tells_the_status() -> None:
    """UNKNOWN is told apart from INFEASIBLE, of which reason and remedy are named."""
    document = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    text = printed(*solution_text(document))
    assert "no plan found, and no proof that there is none" in text
    assert "the time limit was reached" in text
    document = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    text = printed(*solution_text(document, Infeasibility("memory", "larger GPUs")))
    assert "infeasible: proved that there is no plan for any target" in text
    assert "not met       memory" in text
    assert "would help    larger GPUs" in text


def test_other_targets_say_what_they_may_bring(document: PlanDocument) -> None:
    """What was seen there, what is not ruled out, and what nobody had time for, together."""
    others = [
        OtherTarget(target="torchtitan", gain=0.2, found_gain=0.1, search="{a: b}"),
        OtherTarget(target="megatron", gain=0.3, search="{c: d}"),
        OtherTarget(target="flagscale", gain=None, search="{}"),
    ]
    lines = [text for label, text in outcome(document, others) if label == "elsewhere"]
    assert lines == [
        "torchtitan: 10.0 % faster, at most 20.0 %, with search: {a: b}",
        "Megatron-LM: not yet ruled out that a plan is up to 30.0 % faster, with search: {c: d}",
        "not yet looked at for want of time: FlagScale; `explain` does",
    ]
