"""One optimizer step as rows of bars: a row per stage and group of identical replicas.

A stage is one of the pp, with all its chunks of layers.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.document import PlanDocument, ReplicaDocument, StageDocument
from solver.report.naming import layers_text
from solver.report.quantities import node_ranges, ranges, time_text
from solver.report.stages import num_chunks
from solver.simulate import Operation, Step


def replicas_text(replicas: Sequence[int]) -> str:
    """Numbers with their noun: "replica 3", "replicas 0-7"."""
    return f"replica{'s' if len(replicas) > 1 else ''} {ranges(replicas)}"


@dataclass(frozen=True)
class Row:
    """What one stage does during the step, in order, for replicas that do the same."""

    stage: int
    layers: str  #: by name, chunk by chunk
    replicas: tuple[int, ...]
    nodes: str
    gpu_type: str
    bars: tuple[Operation, ...]


def _signature(replica: ReplicaDocument) -> tuple[object, ...]:
    """All that a replica's timeline depends on, besides what its stages share with others."""
    return (
        replica.micro_batches,
        *(
            (s.gpu_type, s.forward_s, s.backward_s, s.weight_gradient_s, s.send_forward_s)
            for s in replica.stages
        ),
    )


def identical_replicas(document: PlanDocument) -> list[tuple[int, ...]]:
    """Replica numbers, grouped by equal timelines."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        groups[_signature(replica)].append(r)
    return [tuple(group) for group in groups.values()]


def stages_of(document: PlanDocument, stage: int, replicas: tuple[int, ...]) -> list[StageDocument]:
    """One stage of some replicas."""
    return [document.replicas[r].stages[stage] for r in replicas]


def rows_of(document: PlanDocument, step: Step) -> list[Row]:
    """Rows by group of replicas, then stage; what all replicas share stands in every group."""
    rows, workload = [], document.instance.workload
    for group in identical_replicas(document):
        bars: dict[int, list[Operation]] = defaultdict(list)
        for operation in (*step.operations(group[0]), *step.tail):
            bars[operation.stage].append(operation)
        for k in range(step.costs.shape.pp):
            stages = stages_of(document, k, group)
            chunks = document.replicas[group[0]].stages[k :: step.costs.shape.pp]
            rows.append(
                Row(
                    stage=k,
                    layers=", ".join(layers_text(workload, range(*one.layers)) for one in chunks),
                    replicas=group,
                    nodes=node_ranges(dict.fromkeys(stage.node for stage in stages)),
                    gpu_type=stages[0].gpu_type,
                    bars=tuple(sorted(bars[k], key=lambda bar: bar.start_ns)),
                )
            )
    return rows


MARKS = {
    "forward": "F",
    "backward": "B",
    "weight": "W",
    "sync": "S",
    "embedding": "E",
    "optimizer": "O",
    "gather": "G",
}
NAMES = {
    "forward": "forward",
    "backward": "backward",
    "weight": "weight gradients",
    "sync": "gradient sync",
    "embedding": "embedding sync",
    "optimizer": "optimizer",
    "gather": "parameter gather",
}
IDLE = "."
COLUMNS = 80


def _cells(bars: Sequence[Operation], step_time_ns: int, width: int) -> list[dict[str, int]]:
    """Time by letter in every slice, in units of 1 / width ns; slices are `step_time_ns` long."""
    cells: list[dict[str, int]] = [{} for _ in range(width)]
    for bar in bars:
        first = bar.start_ns * width // step_time_ns
        last = (bar.end_ns * width - 1) // step_time_ns
        for cell in range(first, last + 1):
            start = max(bar.start_ns * width, cell * step_time_ns)
            end = min(bar.end_ns * width, (cell + 1) * step_time_ns)
            mark = MARKS[bar.kind].lower() if bar.chunk else MARKS[bar.kind]
            cells[cell][mark] = cells[cell].get(mark, 0) + end - start
    for times in cells:
        if idle := step_time_ns - sum(times.values()):
            times[IDLE] = idle
    return cells


def marks(bars: Sequence[Operation], step_time_ns: int, width: int) -> str:
    """`width` letters, one per slice of the step.

    Each stands for something that happens in its slice, chosen so that the letters of a row
    keep the shares of the times, however many operations fall into one slice.
    """
    due: Counter[str] = Counter()
    letters = []
    for times in _cells(bars, step_time_ns, width):
        due.update(times)
        letter = max(times, key=lambda mark: due[mark])
        due[letter] -= step_time_ns
        letters.append(letter)
    return "".join(letters)


def names_of(document: PlanDocument, rows: Sequence[Row]) -> dict[str, str]:
    """Names of the kinds of bars that occur; a send that blocks is part of its operation."""
    used = {bar.kind for row in rows for bar in row.bars}
    names = {kind: name for kind, name in NAMES.items() if kind in used}
    if "weight" in names:
        names["backward"] = "input gradients"
    if document.instance.search.blocking_sends:
        names |= {kind: f"{names[kind]} and send" for kind in ("forward", "backward")}
    return names


def legend(document: PlanDocument, rows: Sequence[Row]) -> str:
    """Meaning of the letters that occur."""
    texts = [f"{MARKS[kind]} {name}" for kind, name in names_of(document, rows).items()]
    later = ["small letters: later chunks"] if num_chunks(document) > 1 else []
    return ", ".join([*texts, f"{IDLE} idle", *later])


def text_timeline(document: PlanDocument, step: Step) -> str:
    """Lines of text; identical replicas share their lines."""
    rows = rows_of(document, step)
    total_s = step.step_time_ns / 1e9
    end = time_text(total_s)
    label = max(len(f"stage {row.stage}") for row in rows)
    width = COLUMNS - label - max(len(row.gpu_type) for row in rows) - 2
    lines = [
        f"one step of {end}; each letter stands for {time_text(total_s / width)}",
        legend(document, rows),
    ]
    replicas: tuple[int, ...] | None = None
    for row in rows:
        if row.replicas != replicas:
            replicas = row.replicas
            lines += ["", replicas_text(replicas)]
        name = f"stage {row.stage}".ljust(label)
        lines.append(f"{name} {marks(row.bars, step.step_time_ns, width)} {row.gpu_type}")
    lines.append(f"{'':{label}} 0{end:>{width - 1}}")
    return "\n".join(lines)


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


#: Of the time that is shown, what stands for the time that is not.
_WIDTH = 0.04


@dataclass(frozen=True)
class Fold:
    """What lies between two times of the step is not shown but as a gap of some width, ns."""

    start_ns: int
    end_ns: int
    width_ns: int

    @property
    def skipped_ns(self) -> int:
        """By how much everything behind the fold moves to the left."""
        return self.end_ns - self.start_ns - self.width_ns

    def parts(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """What is shown of an interval of the step, in times of the picture."""
        if start_ns < self.start_ns:
            yield start_ns, min(end_ns, self.start_ns)
        if end_ns > self.end_ns:
            yield max(start_ns, self.end_ns) - self.skipped_ns, end_ns - self.skipped_ns

    def hides(self, bar: Operation) -> bool:
        """Whether nothing of an operation is shown."""
        return self.start_ns <= bar.start_ns and bar.end_ns <= self.end_ns


def fold_for(rows: Sequence[Row], step_time_ns: int, most: int) -> Fold:
    """The fold that leaves about so many bars, half of them on each side; an empty one if all."""
    starts = sorted(bar.start_ns for row in rows for bar in row.bars)
    ends = sorted(bar.end_ns for row in rows for bar in row.bars)
    half = most // 2
    if len(starts) <= most or starts[half] >= ends[-half]:
        return Fold(step_time_ns, step_time_ns, 0)
    start, end = starts[half], ends[-half]
    return Fold(start, end, int(_WIDTH * (step_time_ns - (end - start))))


def hidden_micro_batches(row: Row, fold: Fold) -> int:
    """Micro-batches of a row of which no pass is shown."""
    shown = {bar.micro_batch for bar in row.bars if not fold.hides(bar)}
    return len({bar.micro_batch for bar in row.bars} - shown)


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
