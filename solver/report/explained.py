"""A plan and its changes: what each saves, what it costs, and how well that is proved."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from rich.console import Group

from formulations.instance.targets import TARGETS, Target
from formulations.space.launch import able
from solver.document import PlanDocument
from solver.plan_figures import plan_of, step_of
from solver.report.assumptions import calibration_lines
from solver.report.critical import summary
from solver.report.layout import Columns, Grid, Labelled, Lines, Parts, table_of
from solver.report.quantities import percent, time_text
from solver.report.stages import tightest
from solver.report.text import second_best_lines
from solver.result import Answer, Status, by_saving

#: Gains that differ by less are told as one.
_ALIKE = 0.0005
_TENTH = 0.1  # of a step, which users ask for


def explanation(document: PlanDocument, answers: Sequence[Answer]) -> Parts:
    """What the time of a step goes into, and every change with what it saves and costs.

    Those that save most come first. Last what saves a tenth, most cheaply.
    """
    what = "time" if document.minimize == "step_time" else "money"
    note = (
        "changes, each solved again from this plan where it stays possible;\n"
        f"saved: {what} per sequence against it; USD/h: rent beside its own"
    )
    labels = Labelled(
        summary(document, step_of(document)),
        [("memory", tightest(document))],
        second_best_lines(document),
        calibration_lines(document),
    )
    by_gain = by_saving(answers)
    today = frozenset(able(document.instance, plan_of(document)))
    launch = {answer.change: _launch_change(answer, today) for answer in by_gain}
    columns = {
        "answer": answer_text,
        "launched by": any(launch.values()) and (lambda answer: launch[answer.change]),
    }
    figures_of = {
        "USD/h": lambda answer: _more_rent(answer.more_usd_per_hour),
        "fullest GPU": lambda answer: (
            "-" if answer.fullest_gpu is None else percent(answer.fullest_gpu)
        ),
    }
    table = changes_table(by_gain, gain_text, columns, figures_of)
    return [labels, Group(note, table), Labelled(_a_tenth(by_gain, what))]


def _launch_change(answer: Answer, today: frozenset[Target]) -> str:
    """Which targets can launch the changed plan that cannot launch this one, and the reverse."""
    if answer.launched_by is None:
        return ""
    changed = {*answer.launched_by}
    more, fewer = (
        ", ".join(TARGETS[target].name for target in TARGETS if target in targets)
        for targets in (changed - today, today - changed)
    )
    return "; ".join(text for text in (more and f"also {more}", fewer and f"not {fewer}") if text)


def _more_rent(usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "-"
    return f"{usd_per_hour:+.2f}" if abs(usd_per_hour) >= 0.005 else "0"


def _a_tenth(answers: Sequence[Answer], what: str) -> Lines:
    """The cheapest change that is known to save a tenth; beside it those that have no price."""
    label = "10 % faster" if what == "time" else "10 % cheaper"
    enough = [a for a in answers if (a.saves_at_least or 0.0) >= _TENTH]
    priced = [a for a in enough if a.more_usd_per_hour is not None]
    cheapest = min(priced, key=lambda a: a.more_usd_per_hour or 0.0, default=None)

    def told(answer: Answer) -> str:
        rent = _more_rent(answer.more_usd_per_hour)
        price = "" if rent == "-" else f", {rent} USD/h"
        return f"{answer.change}{price}: saves {gain_text(answer)} ({answer_text(answer)})"

    texts = [f"cheapest by {told(cheapest)}"] if cheapest else []
    texts += [f"not priced: {told(a)}" for a in enough if a.more_usd_per_hour is None]
    if not texts:
        nearest = f"; nearest: {told(answers[0])}" if answers and answers[0].step_time_s else ""
        texts = [f"no single change is known to bring it{nearest}"]
    return [(label, texts[0]), *(("", text) for text in texts[1:])]


def answer_text(answer: Answer) -> str:
    """How well a change is answered: proved to the gap asked for, found alone, or neither."""
    if answer.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return "proved"
    return "not reached" if answer.saves_at_most is None else "found"


def gain_text(answer: Answer) -> str:
    """What a change saves, as far as it is proved; what it costs is negative."""

    def signed(share: float) -> str:
        return percent(share) if abs(share) >= _ALIKE else "0 %"

    if answer.saves_at_least is None:
        return "no plan" if answer.status == "infeasible" else "-"
    if answer.saves_at_most is None:
        return f"{signed(answer.saves_at_least)} at least"
    if answer.saves_at_most - answer.saves_at_least < _ALIKE:
        return signed(answer.saves_at_least)
    return f"{signed(answer.saves_at_least)} to {signed(answer.saves_at_most)}"


def answers_json(answers: Sequence[Answer]) -> list[dict[str, object]]:
    """The same as data."""
    return [asdict(answer) for answer in answers]


def changes_table(
    answers: Sequence[Answer],
    saved: Callable[[Answer], str],
    texts: Columns[Answer] | None = None,
    numbers: Columns[Answer] | None = None,
) -> Grid:
    """A line for each change: its step time and what it saves, and what more columns say."""
    longest_s = max((answer.step_time_s or 0.0 for answer in answers), default=0.0)

    def step(answer: Answer) -> str:
        return "-" if answer.step_time_s is None else time_text(answer.step_time_s, longest_s)

    change = {"change": lambda answer: answer.change}
    gained = {"step time": step, "saved": saved}
    return table_of(answers, change | dict(texts or {}), gained | dict(numbers or {}))
