"""One step in the Trace Event Format, for Perfetto and chrome://tracing.

Format: "Trace Event Format", Google, 2016: complete events (ph X) with ts and dur in microseconds,
metadata events (ph M) that name processes and threads. A process is a group of replicas that do the
same, a thread one of its stages.
"""

import json
from collections.abc import Iterator

from solver.document import PlanDocument
from solver.report.rows import Row, replicas_text, rows_of
from solver.report.timeline import names_of
from solver.simulate import Operation, Step


def chrome_trace(document: PlanDocument, step: Step) -> str:
    """JSON text of the trace, for a document with a plan and its simulated step."""
    rows = rows_of(document, step)
    names = names_of(document, rows)
    critical = {(bar.replica, bar.stage, bar.start_ns, bar.kind) for bar in step.critical_path}
    events: list[dict[str, object]] = []
    for row in rows:
        events += _names(row)
        events += [_event(bar, row, names[bar.kind], critical) for bar in row.bars]
    trace = {"displayTimeUnit": "ms", "traceEvents": events}
    return json.dumps(trace, separators=(",", ":")) + "\n"


def _names(row: Row) -> Iterator[dict[str, object]]:
    process, own = row.replicas[0], {"pid": row.replicas[0], "tid": row.stage}
    if row.stage == 0:
        name = {"name": replicas_text(row.replicas)}
        yield {"ph": "M", "name": "process_name", "pid": process, "args": name}
    name = {"name": f"stage {row.stage}: layers {row.layers}, {row.nodes} ({row.gpu_type})"}
    yield {"ph": "M", "name": "thread_name", **own, "args": name}
    yield {"ph": "M", "name": "thread_sort_index", **own, "args": {"sort_index": row.stage}}


def _event(
    bar: Operation, row: Row, name: str, critical: set[tuple[int | None, int, int, str]]
) -> dict[str, object]:
    number = "" if bar.micro_batch is None else f" {bar.micro_batch}"
    on_path = (bar.replica, bar.stage, bar.start_ns, bar.kind) in critical
    return {
        "ph": "X",
        "name": name + number,
        "cat": bar.kind + (",critical" if on_path else ""),
        "pid": row.replicas[0],
        "tid": bar.stage,
        "ts": bar.start_ns / 1000,
        "dur": (bar.end_ns - bar.start_ns) / 1000,
        "args": {"micro_batch": bar.micro_batch, "chunk": bar.chunk, "on_critical_path": on_path},
    }
