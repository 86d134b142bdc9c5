"""How a plan that is run stands, in words and as data."""

from collections.abc import Iterator

from rich.console import RenderableType

from formulations.instance.target import TARGET_NAMES
from solver.comparison import Answer, Evaluation
from solver.document import PlanDocument, StageDocument
from solver.report.critical import summary
from solver.report.explained import answers_json
from solver.report.layout import Lines, labelled, table
from solver.report.quantities import percent, size_text, time_text
from solver.report.stages import alike, memory_table, placed, stage_table
from solver.report.text import figures, heading_lines
from solver.simulate import Step


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
