"""One optimizer step as rows of bars: a row per stage and group of identical replicas.

A stage is one of the pp, with all its chunks of layers. The rows are written as text, as data of
the page's script, and as a trace for Perfetto.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from solver.document import PlanDocument
from solver.plan_figures import step_of
from solver.report.layout import Grid
from solver.report.naming import WORDS, layers_text
from solver.report.quantities import node_ranges, percent, ranges, time_text, time_unit
from solver.simulate import Operation, Step

IDLE = "."
COLUMNS = 80
#: Bars on a page, and at least in each of its rows.
_MOST_BARS, _LEAST_PER_ROW = 8000, 24


# Rows


@dataclass(frozen=True)
class Row:
    """What one stage does during the step, in order, for replicas that do the same."""

    stage: int
    layers: str  #: by name, chunk by chunk
    replicas: tuple[int, ...]
    nodes: str
    gpu_type: str
    bars: tuple[Operation, ...]


def replicas_text(replicas: Sequence[int]) -> str:
    """Numbers with their noun: "replica 3", "replicas 0-7"."""
    return f"replica{'s' if len(replicas) > 1 else ''} {ranges(replicas)}"


def rows_of(document: PlanDocument, step: Step) -> list[Row]:
    """Rows by group of replicas, then stage; what all replicas share stands in every group."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        # All that timelines depend on, besides what stages share
        stages = (
            (s.gpu_type, s.forward_s, s.backward_s, s.weight_gradient_s, s.send_forward_s)
            for s in replica.stages
        )
        groups[replica.micro_batches, *stages].append(r)
    rows, workload, pp = [], document.instance.workload, step.costs.config.pp
    for group in groups.values():
        bars: dict[int, list[Operation]] = defaultdict(list)
        for operation in (*step.operations(group[0]), *step.tail):
            bars[operation.stage].append(operation)
        for k in range(pp):
            chunks = document.replicas[group[0]].stages[k::pp]
            names = dict.fromkeys(document.replicas[r].stages[k].node for r in group)
            rows.append(
                Row(
                    stage=k,
                    layers=", ".join(layers_text(workload, range(*c.layers)) for c in chunks),
                    replicas=tuple(group),
                    nodes=node_ranges(names),
                    gpu_type=chunks[0].gpu_type,
                    bars=tuple(sorted(bars[k], key=lambda bar: bar.start_ns)),
                )
            )
    return rows


def _kind_names(document: PlanDocument, rows: Sequence[Row]) -> dict[str, str]:
    """Names of the kinds of bars that occur; a send that blocks is part of its operation."""
    used = {bar.kind for row in rows for bar in row.bars}
    names = {kind: name for kind, name in WORDS["operations"].items() if kind in used}
    if "weight" in names:
        names["backward"] = "input gradients"
    if document.instance.search.blocking_sends:
        names |= {kind: f"{names[kind]} and send" for kind in ("forward", "backward")}
    return names


# Text: a line per stage, a letter per slice of time


def text_timeline(document: PlanDocument, step: Step) -> Iterator[str]:
    """Lines of text; identical replicas share their lines."""
    rows = rows_of(document, step)
    total_s = step.step_time_ns / 1e9
    end = time_text(total_s)
    label = max(len(f"stage {row.stage}") for row in rows)
    width = COLUMNS - label - max(len(row.gpu_type) for row in rows) - 2
    legend = [f"{kind[0].upper()} {name}" for kind, name in _kind_names(document, rows).items()]
    legend.append(f"{IDLE} idle")
    if document.planned.vpp > 1:
        legend.append("small letters: later chunks")
    yield f"one step of {end}; each letter stands for {time_text(total_s / width)}"
    yield ", ".join(legend)
    for replicas, stages in groupby(rows, key=lambda row: row.replicas):
        yield from ("", replicas_text(replicas))
        for row in stages:
            name = f"stage {row.stage}".ljust(label)
            yield f"{name} {marks(row.bars, step.step_time_ns, width)} {row.gpu_type}"
    yield f"{'':{label}} 0{end:>{width - 1}}"


def marks(bars: Sequence[Operation], step_time_ns: int, width: int) -> str:
    """`width` letters, one per slice of the step.

    Each stands for something that happens in its slice, chosen so that the letters of a row
    keep the shares of the times, however many operations fall into one slice.
    """
    # Time by letter in every slice, in units of 1 / width ns; slices are `step_time_ns` long.
    cells: list[dict[str, int]] = [{} for _ in range(width)]
    for bar in bars:
        first = bar.start_ns * width // step_time_ns
        last = (bar.end_ns * width - 1) // step_time_ns
        letter = bar.kind[0].upper()
        mark = letter.lower() if bar.chunk else letter
        for cell in range(first, last + 1):
            start = max(bar.start_ns * width, cell * step_time_ns)
            end = min(bar.end_ns * width, (cell + 1) * step_time_ns)
            cells[cell][mark] = cells[cell].get(mark, 0) + end - start
    # The letter that is most behind its share of the time so far.
    due: Counter[str] = Counter()
    letters = []
    for times in cells:
        if idle := step_time_ns - sum(times.values()):
            times[IDLE] = idle
        due.update(times)
        chosen = max(times, key=lambda mark: due[mark])
        due[chosen] -= step_time_ns
        letters.append(chosen)
    return "".join(letters)


# Data of the page's script; of a long step what lies in the middle is left out


def left_out(rows: Sequence[Row], num_bars: int) -> tuple[int, int]:
    """Times between which no bar is shown, so that about `num_bars` are, half on each side.

    A pipeline that has filled repeats itself with every micro-batch. (0, 0): all are shown.
    """
    starts = sorted(bar.start_ns for row in rows for bar in row.bars)
    ends = sorted(bar.end_ns for row in rows for bar in row.bars)
    half = num_bars // 2
    fits = len(starts) <= num_bars or starts[half] >= ends[-half]
    return (0, 0) if fits else (starts[half], ends[-half])


def timeline_data(document: PlanDocument, rows: Sequence[Row], step: Step) -> dict[str, object]:
    """Times in ns of the picture; gap: between which bars are left out.

    kinds: [kind, name]. rows: label, place, and bars as [kind, start, duration, micro-batch or -1,
    chunk]. critical: [row, start, end] along the critical path. hidden: micro-batches of a row
    without a bar that is shown.
    """
    begin_ns, end_ns = left_out(rows, max(_MOST_BARS, _LEAST_PER_ROW * len(rows)))
    names = _kind_names(document, rows)
    number_of_kind = {kind: number for number, kind in enumerate(names)}
    replica = next(bar.replica for bar in step.critical_path if bar.replica is not None)

    def shown(bars: Sequence[Operation]) -> list[Operation]:
        return [bar for bar in bars if bar.start_ns < begin_ns or bar.end_ns > end_ns]

    def micro_batches(bars: Sequence[Operation]) -> set[int | None]:
        return {bar.micro_batch for bar in bars}

    row_of_stage = {row.stage: i for i, row in enumerate(rows) if replica in row.replicas}
    return {
        "step": step.step_time_ns,
        "gap": [begin_ns, end_ns],
        "hidden": max(len(micro_batches(r.bars) - micro_batches(shown(r.bars))) for r in rows),
        "kinds": list(names.items()),
        "rows": [
            {
                "stage": row.stage,
                "place": f"layers {row.layers}; {replicas_text(row.replicas)}; "
                f"{row.nodes} ({row.gpu_type})",
                "bars": [
                    [
                        *(number_of_kind[bar.kind], bar.start_ns, bar.end_ns - bar.start_ns),
                        *(-1 if bar.micro_batch is None else bar.micro_batch, bar.chunk),
                    ]
                    for bar in shown(row.bars)
                ],
            }
            for row in rows
        ],
        "critical": [
            [row_of_stage[bar.stage], bar.start_ns, bar.end_ns] for bar in shown(step.critical_path)
        ],
    }


def timeline_table(document: PlanDocument, rows: Sequence[Row], step: Step) -> Grid:
    """What every row of the timeline does: how often, from when to when, and for how long."""
    unit, critical, lines = time_unit(step.step_time_ns / 1e9), {*step.critical_path}, []
    for kind, name in _kind_names(document, rows).items():
        for row in rows:
            bars = [bar for bar in row.bars if bar.kind == kind]
            total_ns, path_ns = (
                sum(bar.end_ns - bar.start_ns for bar in timed)
                for timed in (bars, critical & {*bars})
            )
            if bars:
                times_ns = (bars[0].start_ns, bars[-1].end_ns, total_ns, path_ns)
                texts = (str(row.stage), ranges(row.replicas), name, f"{len(bars):,}")
                share = percent(total_ns / step.step_time_ns)
                lines.append((*texts, *(unit.number(ns / 1e9) for ns in times_ns), share))
    names = ("first starts", "last ends", "in all", "on the critical path")
    times = [f"{name} {unit.name}" for name in names]
    return Grid(("stage", "replicas", "what"), ("times", *times, "of the step"), lines)


# A trace for Perfetto and chrome://tracing


def chrome_trace(document: PlanDocument) -> str:
    """A step in the Trace Event Format, for a document with a plan.

    Format: "Trace Event Format", Google, 2016: complete events (ph X) with ts and dur in
    microseconds, metadata events (ph M) that name processes and threads. A process is a group of
    replicas that do the same, a thread one of its stages.
    """
    step = step_of(document)
    rows = rows_of(document, step)
    names = _kind_names(document, rows)
    critical = {*step.critical_path}
    events: list[dict[str, object]] = []
    for row in rows:
        thread = {"pid": row.replicas[0], "tid": row.stage}
        place = f"stage {row.stage}: layers {row.layers}, {row.nodes} ({row.gpu_type})"
        named = {"thread_name": {"name": place}, "thread_sort_index": {"sort_index": row.stage}}
        if row.stage == 0:
            process = {"name": "process_name", "pid": row.replicas[0]}
            events.append({"ph": "M", **process, "args": {"name": replicas_text(row.replicas)}})
        events += [
            {"ph": "M", "name": name, **thread, "args": args} for name, args in named.items()
        ]
        for bar in row.bars:
            number = "" if bar.micro_batch is None else f" {bar.micro_batch}"
            on_path = bar in critical
            args = {"micro_batch": bar.micro_batch, "chunk": bar.chunk, "on_critical_path": on_path}
            events.append(
                {
                    "ph": "X",
                    "name": names[bar.kind] + number,
                    "cat": bar.kind + (",critical" if on_path else ""),
                    **thread,
                    "ts": bar.start_ns / 1000,
                    "dur": (bar.end_ns - bar.start_ns) / 1000,
                    "args": args,
                }
            )
    trace = {"displayTimeUnit": "ms", "traceEvents": events}
    return json.dumps(trace, separators=(",", ":")) + "\n"
