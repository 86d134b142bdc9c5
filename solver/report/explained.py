"""What limits a plan and what would make it better, in words."""

from collections.abc import Sequence

from rich.console import RenderableType

from solver.comparison import Answer
from solver.document import PlanDocument
from solver.report.critical import summary
from solver.report.layout import labelled, table
from solver.report.quantities import percent, time_text
from solver.simulate import Step

#: Gains that differ by less are told as one.
_ALIKE = 0.0005


def explanation(
    document: PlanDocument, step: Step, found: Sequence[Answer]
) -> list[RenderableType]:
    """What the time of a step goes into, and every change with what it saves, most first."""
    what = "time" if document.minimize == "step_time" else "money"
    longest = max((one.step_time_s or 0.0 for one in found), default=0.0)
    rows = [
        (one.change, _step(one, longest), _gain(one))
        for one in sorted(found, key=lambda one: (one.least is None, -(one.least or 0.0)))
    ]
    note = (
        "changes, each solved again from this plan where it stays possible;\n"
        f"saved: {what} per sequence against it, as proved"
    )
    return [
        labelled(summary(document, step.costs, step)),
        "",
        note,
        table(("change",), ("step time", "saved"), rows),
    ]


def _step(answer: Answer, longest_s: float) -> str:
    return "-" if answer.step_time_s is None else time_text(answer.step_time_s, longest_s)


def _gain(answer: Answer) -> str:
    if answer.least is None:
        return "no plan" if answer.status == "infeasible" else "not reached in time"
    if answer.most is None:
        return f"{_signed(answer.least)} at least, not reached in time"
    if answer.most - answer.least < _ALIKE:
        return _signed(answer.least)
    return f"{_signed(answer.least)} to {_signed(answer.most)}"


def _signed(share: float) -> str:
    """A saving; what a change costs is negative."""
    return percent(share) if abs(share) >= _ALIKE else "0 %"


def answers_json(found: Sequence[Answer]) -> list[dict[str, object]]:
    """The same as data."""
    return [
        {
            "change": one.change,
            "status": str(one.status),
            "step_time_s": one.step_time_s,
            "saves_at_least": one.least,
            "saves_at_most": one.most,
        }
        for one in found
    ]
