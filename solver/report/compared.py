"""Methods side by side, as a table for people and as data."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from formulations.instance.target import TARGET_NAMES
from formulations.plan import Shape
from solver.comparison import Answer, Comparison, Evaluation, Finding
from solver.document import PlanDocument, StageDocument
from solver.report.critical import summary
from solver.report.layout import Lines, labelled, table
from solver.report.naming import tensor_text
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


def _worth(comparison: Comparison, objective: float | None) -> str:
    """An objective as a time, as all of a column are, or as money if that is minimised."""
    if objective is None:
        return "-"
    if comparison.instance.objective.minimize == "step_time":
        longest = max(comparison.objective or 0.0, comparison.bound or 0.0)
        return time_text(objective / 1e9, longest / 1e9)
    return money(objective / _HOUR_NS)


def _shape(shape: Shape | None) -> str:
    return (
        f"{tensor_text(shape.degrees_used)} x {shape.dp} x {shape.pp}, {shape.micro_batch}"
        if shape
        else "-"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _method_row(comparison: Comparison, finding: Finding) -> tuple[str, ...]:
    stopped = finding.termination in ("time_limit", "interrupted")
    return (
        finding.method,
        f"{finding.status}, {finding.termination.replace('_', ' ')}"
        if stopped
        else str(finding.status),
        _shape(finding.shape),
        _worth(comparison, finding.objective),
        _worth(comparison, finding.bound),
        _share(finding.gap),
        _share(comparison.above(finding)),
        significant(finding.runtime_s, 3),
    )


def _verdict(comparison: Comparison) -> str:
    clashes = comparison.contradictions
    if clashes:
        return f"{counted(len(clashes), 'contradiction')}: one of the methods is wrong"
    proofs = sum(finding.bound is not None for finding in comparison.findings)
    if not proofs:
        return "nothing to contradict: no method proved a bound"
    number = "is 1" if proofs == 1 else f"are {proofs}"
    return f"no plan is below a proved bound, of which there {number}"


def comparison_text(comparison: Comparison) -> list[RenderableType]:
    """The findings, one line per method, and whether they agree."""
    worth = "step time" if comparison.instance.objective.minimize == "step_time" else "money"
    numbers = (worth, "lower bound", "gap", "above best bound", "seconds")
    rows = [_method_row(comparison, finding) for finding in comparison.findings]
    lines = [("verdict", _verdict(comparison))]
    lines += [("", clash) for clash in comparison.contradictions]
    texts = ("method", "status", "shape tp x dp x pp, b")
    return [table(texts, numbers, rows), "", labelled(lines)]


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
                "method": one.method,
                "status": one.status,
                "termination": one.termination,
                "shape": one.shape and one.shape.model_dump(mode="json"),
                "step_time_s": None if one.step_time_ns is None else one.step_time_ns / 1e9,
                "objective": scaled(one.objective),
                "lower_bound": scaled(one.bound),
                "gap": one.gap,
                "above_best_bound": comparison.above(one),
                "runtime_s": one.runtime_s,
            }
            for one in comparison.findings
        ],
        "contradictions": list(comparison.contradictions),
    }


_TERMS = {
    "compute_s": "compute",
    "transfers_s": "transfers between stages",
    "gradient_sync_s": "gradient sync",
    "embedding_sync_s": "sync of tied embeddings",
    "optimizer_s": "optimizer",
}
Row = tuple[str, str, str, str]


def difference(
    first: PlanDocument, second: PlanDocument, names: tuple[str, str]
) -> list[RenderableType]:
    """Both plans in words, then every figure of both and by how much the second is larger."""
    lines = []
    for name, one in zip(names, (first, second), strict=True):
        if one.shape is not None:
            lines += [(name, shape_text(one, one.shape)), ("", batches_text(one, one.shape))]
    rows = [*_times(first, second), *_others(first, second)]
    return [labelled(lines), "", table(("",), (*names, "difference"), rows)]


def _row(
    name: str, a: float | None, b: float | None, text: Callable[[float], str]
) -> Iterator[Row]:
    """A line where both have the figure."""
    if a is not None and b is not None:
        change = b - a
        sign = "+" if change > 0 else ""
        share = f" ({sign}{percent(change / a)})" if a else ""
        yield name, text(a), text(b), f"{sign}{text(change)}{share}" if change else "none"


def _measured(
    name: str, a: float | None, b: float | None, unit: Callable[[float], Unit]
) -> Iterator[Row]:
    """The same, all in the unit of the larger one."""
    yield from _row(name, a, b, unit(max(a or 0.0, b or 0.0)).text)


def _points(name: str, a: float | None, b: float | None) -> Iterator[Row]:
    """A line of two shares, and the percentage points between them."""
    if a is not None and b is not None:
        points = 100 * (b - a)
        yield name, percent(a), percent(b), f"{points:+.1f} points" if points else "none"


def _times(first: PlanDocument, second: PlanDocument) -> Iterator[Row]:
    yield from _measured("step time", first.step_time_s, second.step_time_s, time_unit)
    for field, name in _TERMS.items():
        a, b = (getattr(one.critical_path, field, None) for one in (first, second))
        if a or b:
            yield from _measured(f"  {name}", a, b, time_unit)


def _others(first: PlanDocument, second: PlanDocument) -> Iterator[Row]:
    yield from _measured("lower bound", first.lower_bound_s, second.lower_bound_s, time_unit)
    a, b = first.throughput_sequences_per_s, second.throughput_sequences_per_s
    yield from _row("throughput", a, b, lambda rate: f"{significant(rate)} sequences/s")
    yield from _points("MFU", first.mfu, second.mfu)
    yield from _measured("fullest GPU", _fullest(first), _fullest(second), size_unit)
    a, b = first.cost_usd_per_step, second.cost_usd_per_step
    if a or b:
        yield from _row("money per step", a, b, money)
    if first.renting and second.renting:
        a, b = (one.cost_usd_per_useful_sequence for one in (first.renting, second.renting))
        yield from _row("money per useful sequence", a, b, money)


def _fullest(document: PlanDocument) -> float | None:
    """Bytes on the GPU that holds most."""
    held = (stage.memory_bytes for replica in document.replicas for stage in replica.stages)
    return max(held, default=None)


def evaluation_text(document: PlanDocument, step: Step, found: Evaluation) -> list[RenderableType]:
    """Stages, memory, time, limits that are broken, distance from the best, single changes."""
    lines = [*figures(document), *summary(document, step.costs, step), *_limits(document, found)]
    parts: list[RenderableType] = [
        labelled(heading_lines(document)),
        "",
        stage_table(document),
        "",
        "memory per GPU",
        memory_table(document),
        "",
        labelled([*lines, *_distance(document, found)]),
    ]
    if found.changes:
        longest = max(one.step_time_s or 0.0 for one in found.changes)
        rows = [
            (one.change, time_text(one.step_time_s or 0.0, longest), _saved(one))
            for one in found.changes
        ]
        note = "one decision of the best plan put into this one, alone"
        parts += ["", note, table(("change",), ("step time", "saved"), rows)]
    return parts


def _saved(answer: Answer) -> str:
    return "does not fit" if answer.least is None else percent(answer.least)


def _over(document: PlanDocument) -> Iterator[tuple[int, list[StageDocument]]]:
    """Stages, with the GPUs whose memory they exceed."""
    for stage, chunk, _, own in alike(document):
        if not chunk and own[0].memory_bytes > own[0].memory_limit_bytes:
            yield stage, own


def _limits(document: PlanDocument, found: Evaluation) -> Lines:
    """What stands in the way of the run, per stage; then limits of the instance."""
    lines = []
    for stage, own in _over(document):
        over = own[0].memory_bytes - own[0].memory_limit_bytes
        text = size_text(over, own[0].memory_limit_bytes)
        lines.append(("over memory", f"{placed(own)}: {text} too much on stage {stage}"))
    others = (one for one in found.broken if one.startswith("instance.limits"))
    return [*lines, *(("over limit", one) for one in others)]


def _distance(document: PlanDocument, found: Evaluation) -> Lines:
    """How far the plan is from the best one."""
    best = found.best
    if best is None:
        return []
    target = TARGET_NAMES[best.instance.search.target]
    if best.step_time_ns is None or found.above_best is None:
        return [("best plan", f"{best.status} for {target}: none to compare with")]
    slower = "slower" if document.minimize == "step_time" else "dearer"
    bound = "" if found.above_bound is None else f"at most {percent(found.above_bound)} {slower}"
    lines = [("best plan", f"{time_text(best.step_time_ns / 1e9)}, {best.status} for {target}")]
    if found.above_best > 0:
        text = f"{percent(found.above_best)} {slower} than it"
        lines.append(("distance", text + bool(bound) * f"; {bound} than any plan"))
    else:
        text = "no better plan was found"
        lines.append(("distance", text + bool(bound) * f"; {bound} than any"))
    saving = next((one for one in found.changes if one.least is not None and one.least > 0), None)
    if saving is not None and saving.least is not None:
        lines.append(("most brings", f"{saving.change}, alone: {percent(saving.least)} saved"))
    return lines


def evaluation_json(document: PlanDocument, found: Evaluation) -> dict[str, object]:
    """The same as data; memory by pipeline stage and replica."""
    best, shape = found.best, document.shape
    return {
        "step_time_s": document.step_time_s,
        "fits": not found.broken,
        "broken": list(found.broken),
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
            "above_best": found.above_best,
            "above_bound": found.above_bound,
        },
        "changes": answers_json(found.changes),
    }


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
