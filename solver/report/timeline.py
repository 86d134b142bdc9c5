"""One step as fixed-width text: a line per stage, a letter per slice of time."""

from collections import Counter
from collections.abc import Sequence

from solver.document import PlanDocument
from solver.report.quantities import time_text
from solver.report.rows import Row, replicas_text, rows_of
from solver.report.stages import num_chunks
from solver.simulate import Operation, Step

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
