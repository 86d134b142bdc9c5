"""Answers side by side: methods, two plans, what runs and the best, a plan and its changes."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from formulations.instance.target import TARGET_NAMES
from solver.comparison import Answer, Comparison, Evaluation, Finding
from solver.document import PlanDocument
from solver.report.critical import summary
from solver.report.layout import Lines, labelled, table
from solver.report.naming import degrees_line
from solver.report.quantities import (
    Unit,
    counted,
    money,
    percent,
    significant,
    size_text,
    size_unit,
    time_text,
    time_unit,
)
from solver.report.stages import alike, memory_table, placed, stage_table
from solver.report.text import batches_text, figures, heading_lines, shape_text
from solver.simulate import Step

_HOUR_NS = 3600e9
#: Terms of a step's critical path, by the field of plan files.
_TERMS = {
    "compute_s": "compute",
    "transfers_s": "transfers between stages",
    "gradient_sync_s": "gradient sync",
    "embedding_sync_s": "sync of tied embeddings",
    "optimizer_s": "optimizer",
}
#: Gains that differ by less are told as one.
_ALIKE = 0.0005


# Methods


def comparison_text(comparison: Comparison) -> list[RenderableType]:
    """The findings, one line per method, and whether they agree."""
    by_time = comparison.instance.objective.minimize == "step_time"
    longest_ns = max(comparison.objective or 0.0, comparison.bound or 0.0)

    def worth(objective: float | None) -> str:
        if objective is None:
            return "-"
        if by_time:
            return time_text(objective / 1e9, longest_ns / 1e9)
        return money(objective / _HOUR_NS)

    def row(finding: Finding) -> tuple[str, ...]:
        stopped = finding.termination in ("time_limit", "interrupted")
        why = f", {finding.termination.replace('_', ' ')}" if stopped else ""
        shares = (finding.gap, comparison.above(finding))
        shape = finding.shape
        return (
            finding.method,
            f"{finding.status}{why}",
            degrees_line(shape, shape.degrees_used) if shape else "-",
            worth(finding.objective),
            worth(finding.bound),
            *("-" if share is None else percent(share) for share in shares),
            significant(finding.runtime_s, 3),
        )

    texts = ("method", "status", "shape tp x dp x pp, b")
    objective = "step time" if by_time else "money"
    numbers = (objective, "lower bound", "gap", "above best bound", "seconds")
    lines = [("verdict", _verdict(comparison))]
    lines += [("", clash) for clash in comparison.contradictions]
    return [table(texts, numbers, map(row, comparison.findings)), "", labelled(lines)]


def _verdict(comparison: Comparison) -> str:
    clashes = comparison.contradictions
    if clashes:
        return f"{counted(len(clashes), 'contradiction')}: one of the methods is wrong"
    proofs = sum(finding.bound is not None for finding in comparison.findings)
    if not proofs:
        return "nothing to contradict: no method proved a bound"
    number = "is 1" if proofs == 1 else f"are {proofs}"
    return f"no plan is below a proved bound, of which there {number}"


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The same as data. objective, lower_bound: in `unit`, s or USD per step."""
    by_time = comparison.instance.objective.minimize == "step_time"
    scale = 1e9 if by_time else _HOUR_NS

    def scaled(value: float | None) -> float | None:
        return None if value is None else value / scale

    return {
        "instance": comparison.instance.name,
        "minimize": comparison.instance.objective.minimize,
        "unit": "s" if by_time else "USD",
        "objective": scaled(comparison.objective),
        "lower_bound": scaled(comparison.bound),
        "methods": [
            {
                "method": finding.method,
                "status": finding.status,
                "termination": finding.termination,
                "shape": finding.shape and finding.shape.model_dump(mode="json"),
                "step_time_s": None if finding.step_time_ns is None else finding.step_time_ns / 1e9,
                "objective": scaled(finding.objective),
                "lower_bound": scaled(finding.bound),
                "gap": finding.gap,
                "above_best_bound": comparison.above(finding),
                "runtime_s": finding.runtime_s,
            }
            for finding in comparison.findings
        ],
        "contradictions": list(comparison.contradictions),
    }


# Two plans

Row = tuple[str, str, str, str]


def difference(
    first: PlanDocument, second: PlanDocument, names: tuple[str, str]
) -> list[RenderableType]:
    """Both plans in words, then every figure of both and by how much the second is larger."""
    lines = []
    for name, plan in zip(names, (first, second), strict=True):
        if plan.shape is not None:
            lines += [(name, shape_text(plan, plan.shape)), ("", batches_text(plan, plan.shape))]
    rows = _difference_rows(first, second)
    return [labelled(lines), "", table(("",), (*names, "difference"), rows)]


def _difference_rows(first: PlanDocument, second: PlanDocument) -> Iterator[Row]:
    """Every figure that both have, terms of the critical path where either takes time."""

    def times(name: str, a: float | None, b: float | None) -> Iterator[Row]:
        return _compared(name, a, b, _in_unit(time_unit, a, b))

    yield from times("step time", first.step_time_s, second.step_time_s)
    for field, name in _TERMS.items():
        a, b = (getattr(plan.critical_path, field, None) for plan in (first, second))
        if a or b:
            yield from times(f"  {name}", a, b)
    yield from times("lower bound", first.lower_bound_s, second.lower_bound_s)
    a, b = first.throughput_sequences_per_s, second.throughput_sequences_per_s
    yield from _compared("throughput", a, b, lambda rate: f"{significant(rate)} sequences/s")
    if first.mfu is not None and second.mfu is not None:
        points = 100 * (second.mfu - first.mfu)
        change = f"{points:+.1f} points" if points else "none"
        yield "MFU", percent(first.mfu), percent(second.mfu), change
    a, b = (
        max((s.memory_bytes for replica in plan.replicas for s in replica.stages), default=None)
        for plan in (first, second)
    )
    yield from _compared("fullest GPU", a, b, _in_unit(size_unit, a, b))
    a, b = first.cost_usd_per_step, second.cost_usd_per_step
    if a or b:
        yield from _compared("money per step", a, b, money)
    if first.renting and second.renting:
        a, b = (plan.cost_usd_per_useful_sequence for plan in (first.renting, second.renting))
        yield from _compared("money per useful sequence", a, b, money)


def _in_unit(
    unit: Callable[[float], Unit], a: float | None, b: float | None
) -> Callable[[float], str]:
    """Text of both and of their difference in the unit of the larger one."""
    return unit(max(a or 0.0, b or 0.0)).text


def _compared(
    name: str, a: float | None, b: float | None, text: Callable[[float], str]
) -> Iterator[Row]:
    """A line where both have the figure."""
    if a is not None and b is not None:
        change = b - a
        sign = "+" if change > 0 else ""
        share = f" ({sign}{percent(change / a)})" if a else ""
        yield name, text(a), text(b), f"{sign}{text(change)}{share}" if change else "none"


# What runs today, and the best plan


def evaluation_text(
    document: PlanDocument, step: Step, evaluation: Evaluation
) -> list[RenderableType]:
    """Stages, memory, time, limits that are broken, distance from the best, single changes."""
    lines = [*figures(document), *summary(document, step.costs, step)]
    for stage, chunk, _, stages in alike(document):
        limit = stages[0].memory_limit_bytes
        over = stages[0].memory_bytes - limit
        if not chunk and over > 0:
            text = size_text(over, limit)
            lines.append(("over memory", f"{placed(stages)}: {text} too much on stage {stage}"))
    broken = (text for text in evaluation.broken if text.startswith("instance.limits"))
    lines += [("over limit", text) for text in broken]
    parts: list[RenderableType] = [
        labelled(heading_lines(document)),
        "",
        stage_table(document),
        "",
        "memory per GPU",
        memory_table(document),
        "",
        labelled([*lines, *_distance(document, evaluation)]),
    ]
    if evaluation.changes:
        longest_s = max(change.step_time_s or 0.0 for change in evaluation.changes)
        rows = [
            (
                change.change,
                time_text(change.step_time_s or 0.0, longest_s),
                "does not fit" if change.least is None else percent(change.least),
            )
            for change in evaluation.changes
        ]
        note = "one decision of the best plan put into this one, alone"
        parts += ["", note, table(("change",), ("step time", "saved"), rows)]
    return parts


def _distance(document: PlanDocument, evaluation: Evaluation) -> Lines:
    """How far the plan is from the best one."""
    best = evaluation.best
    if best is None:
        return []
    target = TARGET_NAMES[best.instance.search.target]
    if best.step_time_ns is None or evaluation.above_best is None:
        return [("best plan", f"{best.status} for {target}: none to compare with")]
    slower = "slower" if document.minimize == "step_time" else "dearer"
    bound = ""
    if evaluation.above_bound is not None:
        bound = f"; at most {percent(evaluation.above_bound)} {slower} than any"
    lines = [("best plan", f"{time_text(best.step_time_ns / 1e9)}, {best.status} for {target}")]
    if evaluation.above_best > 0:
        text = f"{percent(evaluation.above_best)} {slower} than it"
        lines.append(("distance", f"{text}{bound and bound + ' plan'}"))
    else:
        lines.append(("distance", f"no better plan was found{bound}"))
    gains = [(change, change.least or 0.0) for change in evaluation.changes]
    saving = next(((change, saved) for change, saved in gains if saved > 0), None)
    if saving is not None:
        lines.append(("most brings", f"{saving[0].change}, alone: {percent(saving[1])} saved"))
    return lines


def evaluation_json(document: PlanDocument, evaluation: Evaluation) -> dict[str, object]:
    """The same as data; memory by pipeline stage and replica."""
    best, shape = evaluation.best, document.shape
    return {
        "step_time_s": document.step_time_s,
        "fits": not evaluation.broken,
        "broken": list(evaluation.broken),
        "shape": shape and shape.model_dump(mode="json"),
        "node_order": list(document.node_order),
        "memory": [
            {
                "replica": r,
                "stage": k,
                "node": stage.node,
                "gpus": list(stage.gpus),
                "memory_bytes": stage.memory_bytes,
                "memory_limit_bytes": stage.memory_limit_bytes,
            }
            for r, replica in enumerate(document.replicas)
            for k, stage in enumerate(replica.stages[: shape.pp if shape else 0])
        ],
        "best": best
        and {
            "status": best.status,
            "target": best.instance.search.target,
            "step_time_s": None if best.step_time_ns is None else best.step_time_ns / 1e9,
            "above_best": evaluation.above_best,
            "above_bound": evaluation.above_bound,
        },
        "changes": answers_json(evaluation.changes),
    }


# A plan and its changes


def explanation(
    document: PlanDocument, step: Step, answers: Sequence[Answer]
) -> list[RenderableType]:
    """What the time of a step goes into, and every change with what it saves, most first."""
    what = "time" if document.minimize == "step_time" else "money"
    longest_s = max((answer.step_time_s or 0.0 for answer in answers), default=0.0)
    rows = [
        (
            answer.change,
            "-" if answer.step_time_s is None else time_text(answer.step_time_s, longest_s),
            gain_text(answer),
        )
        for answer in sorted(answers, key=lambda it: (it.least is None, -(it.least or 0.0)))
    ]
    note = (
        "changes, each solved again from this plan where it stays possible;\n"
        f"saved: {what} per sequence against it, as proved"
    )
    changes = table(("change",), ("step time", "saved"), rows)
    return [labelled(summary(document, step.costs, step)), "", note, changes]


def gain_text(answer: Answer) -> str:
    """What a change saves, as far as it is proved; what it costs is negative."""

    def signed(share: float) -> str:
        return percent(share) if abs(share) >= _ALIKE else "0 %"

    if answer.least is None:
        return "no plan" if answer.status == "infeasible" else "not reached in time"
    if answer.most is None:
        return f"{signed(answer.least)} at least, not reached in time"
    if answer.most - answer.least < _ALIKE:
        return signed(answer.least)
    return f"{signed(answer.least)} to {signed(answer.most)}"


def answers_json(answers: Sequence[Answer]) -> list[dict[str, object]]:
    """The same as data."""
    return [
        {
            "change": answer.change,
            "status": str(answer.status),
            "step_time_s": answer.step_time_s,
            "saves_at_least": answer.least,
            "saves_at_most": answer.most,
        }
        for answer in answers
    ]
