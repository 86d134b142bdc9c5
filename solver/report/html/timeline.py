"""What the script of the page draws: one step, as plain numbers."""

from collections.abc import Sequence

from solver.document import PlanDocument
from solver.report.html.folding import Fold, fold_for, hidden_micro_batches
from solver.report.rows import Row, replicas_text, rows_of
from solver.report.timeline import names_of
from solver.simulate import Operation, Step

#: Bars on a page, and at least in each of its rows.
_MOST_BARS, _LEAST_PER_ROW = 8000, 24
#: Bars of a row that are still told apart on a screen, beside those that fill and empty the
#: pipeline: up to four for every virtual stage.
_STEADY, _PER_STAGE = 128, 4


def timeline_data(document: PlanDocument, step: Step) -> dict[str, object]:
    """Times in ns of the picture, which lacks what lies in the fold.

    kinds: [id, name]. rows: label, place, and bars as [kind, start, duration, micro-batch or -1,
    chunk]. critical: [row, start, end] along the critical path.
    """
    rows = rows_of(document, step)
    readable = _STEADY + _PER_STAGE * len(document.replicas[0].stages)
    most = max(min(_MOST_BARS, readable * len(rows)), _LEAST_PER_ROW * len(rows))
    fold = fold_for(rows, step.step_time_ns, most)
    kinds = list(names_of(document, rows).items())
    return {
        "step": step.step_time_ns,
        "fold": [fold.start_ns, fold.end_ns, fold.width_ns],
        "hidden": max(hidden_micro_batches(row, fold) for row in rows),
        "kinds": kinds,
        "rows": [_row(row, [kind for kind, _ in kinds], fold) for row in rows],
        "critical": _critical(rows, step.critical_path, fold),
    }


def _row(row: Row, kinds: Sequence[str], fold: Fold) -> dict[str, object]:
    bars = [
        [kinds.index(bar.kind), start, end - start, _number(bar), bar.chunk]
        for bar in row.bars
        for start, end in fold.parts(bar.start_ns, bar.end_ns)
    ]
    place = f"layers {row.layers}; {replicas_text(row.replicas)}; {row.nodes} ({row.gpu_type})"
    return {"stage": row.stage, "place": place, "type": row.gpu_type, "bars": bars}


def _number(bar: Operation) -> int:
    return -1 if bar.micro_batch is None else bar.micro_batch


def _critical(rows: Sequence[Row], path: Sequence[Operation], fold: Fold) -> list[list[int]]:
    replica = next(operation.replica for operation in path if operation.replica is not None)
    number = {row.stage: i for i, row in enumerate(rows) if replica in row.replicas}
    return [
        [number[bar.stage], start, end]
        for bar in path
        for start, end in fold.parts(bar.start_ns, bar.end_ns)
    ]
