"""The Gantt picture of one step as a hand-written SVG 1.1 file.

A row per stage and group of identical replicas, all its chunks in it; bars by kind, those of later
chunks darker; the critical path as a red line.
Bars of one colour and row are one path, so that 64 stages of 512 micro-batches stay about 2 MB.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat

from solver.document import PlanDocument
from solver.report.drawing import LETTER, picture, round_part, upright_lines, written
from solver.report.quantities import ranges, round_time_text, time_text
from solver.report.rows import Row, rows_of
from solver.report.stages import num_chunks
from solver.report.text import batches_text, cluster_text, shape_text
from solver.report.timeline import names_of
from solver.simulate import Operation, Step

#: Fill by kind; forwards and backwards alternate between two shades, by micro-batch.
_FILLS = {
    "forward": ("#4c86c6", "#86b3e3"),
    "backward": ("#3f9a5b", "#7cc491"),
    "weight": ("#b5567f", "#dc9bb8"),
    "sync": ("#f0a030", "#f0a030"),
    "embedding": ("#b279c9", "#b279c9"),
    "optimizer": ("#8c6d5a", "#8c6d5a"),
    "gather": ("#e0cb3c", "#e0cb3c"),
}
#: What the shades of the last of several chunks are mixed from, with a share of the first's.
_DARK = "#10103c"
_IDLE = "#ececec"
_CRITICAL = "#d62728"
_CHART_WIDTH = 1100
_HEAD = 92
_MARGIN = 16
_GROUP_HEIGHT = 24
_NARROW = 3.0  # bars up to this width keep to one shade
_DENSE_PATH = 500  # corners from which the critical path is drawn as a thin line


@dataclass(frozen=True)
class _Layout:
    """Where everything stands, in px. tops: upper edge of each row."""

    left: float
    row_height: float
    tops: tuple[float, ...]
    headings: tuple[tuple[float, str], ...]
    bottom: float
    step_time_ns: int

    def x(self, time_ns: float) -> float:
        """Horizontal place of a time."""
        return self.left + _CHART_WIDTH * time_ns / self.step_time_ns


def _fills(kind: str, chunk: int, num_chunks: int) -> tuple[str, str]:
    """The two shades of a kind of bar in one of the chunks: darker from chunk to chunk."""
    share = 0.42 * chunk / max(num_chunks - 1, 1)
    even, odd = (_mixed(fill, _DARK, share) for fill in _FILLS[kind])
    return even, odd


def _mixed(colour: str, other: str, share: float) -> str:
    """#rrggbb between two colours, `share` of the way."""
    pairs = ((int(one[i : i + 2], 16) for one in (colour, other)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def _label(row: Row) -> str:
    nodes = row.nodes if len(row.nodes) <= 24 else row.nodes[:22] + "..."
    return f"stage {row.stage}, layers {row.layers}: {nodes} ({row.gpu_type})"


def _group_heading(document: PlanDocument, replicas: tuple[int, ...]) -> str:
    count = document.replicas[replicas[0]].micro_batches
    batches = f"{count:,} micro-batch{'es' if count > 1 else ''}"
    if len(replicas) == 1:
        return f"replica {replicas[0]}: {batches}"
    return f"replicas {ranges(replicas)} (x {len(replicas)}, all alike): {batches} each"


def _layout(document: PlanDocument, rows: Sequence[Row], step: Step) -> _Layout:
    height = 30.0 if len(rows) <= 16 else 22.0 if len(rows) <= 40 else 15.0
    y, tops, headings = float(_HEAD), [], []
    for replicas, own in groupby(rows, key=lambda row: row.replicas):
        headings.append((y + 16, _group_heading(document, replicas)))
        y += _GROUP_HEIGHT
        for _ in own:
            tops.append(y)
            y += height + 4
    left = _MARGIN + 10 + LETTER * max(len(_label(row)) for row in rows)
    return _Layout(left, height, tuple(tops), tuple(headings), y, step.step_time_ns)


def _bars(layout: _Layout, row: Row, top: float, num_chunks: int) -> Iterator[str]:
    """Bars of one row, a path per colour, then the numbers that fit."""
    paths: dict[str, list[str]] = defaultdict(list)
    numbers = []
    for bar in row.bars:
        x, width = layout.x(bar.start_ns), layout.x(bar.end_ns) - layout.x(bar.start_ns)
        shade = (bar.micro_batch or 0) % 2 if width > _NARROW else 0
        fill = _fills(bar.kind, bar.chunk, num_chunks)[shade]
        paths[fill].append(f"M{x:.2f} {top:.0f}h{width:.2f}v{layout.row_height:.0f}h{-width:.2f}z")
        number = "" if bar.micro_batch is None else str(bar.micro_batch)
        if number and width > LETTER * len(number) + 3 and layout.row_height > 16:
            middle = top + layout.row_height / 2 + 4
            style = ' class="m"' if int(number) % 2 and not bar.chunk else ' class="n"'
            numbers.append(written(x + width / 2, middle, number, style))
    for fill, parts in paths.items():
        yield f'<path fill="{fill}" d="{"".join(parts)}"/>'
    yield from numbers


def _row(layout: _Layout, row: Row, top: float, num_chunks: int) -> Iterator[str]:
    yield written(_MARGIN, top + layout.row_height / 2 + 4, _label(row))
    yield (
        f'<rect x="{layout.left:.1f}" y="{top:.0f}" width="{_CHART_WIDTH}" '
        f'height="{layout.row_height:.0f}" fill="{_IDLE}"/>'
    )
    yield from _bars(layout, row, top, num_chunks)


def _critical(layout: _Layout, rows: Sequence[Row], path: Sequence[Operation]) -> str:
    """Line along the lower edge of the bars that decide the step time."""
    replica = next(operation.replica for operation in path if operation.replica is not None)
    edge = {
        row.stage: top + layout.row_height - 2
        for row, top in zip(rows, layout.tops, strict=True)
        if replica in row.replicas
    }
    points: list[tuple[float, float]] = []
    for operation in path:
        y = edge[operation.stage]
        start, end = layout.x(operation.start_ns), layout.x(operation.end_ns)
        if len(points) > 1 and points[-1][1] == y and points[-2][1] == y:
            points.pop()
        else:
            points.append((start, y))
        points.append((end, y))
    text = " ".join(f"{x:.2f},{y:.1f}" for x, y in points)
    dense = ' style="stroke-width:1"' if len(points) > _DENSE_PATH else ""
    return f'<polyline class="c"{dense} points="{text}"/>'


def ticks(step_time_ns: int) -> list[float]:
    """About ten round times from 0 on, in ns, none after the end of the step."""
    distance = round_part(step_time_ns, 10)
    return [distance * i for i in range(int(step_time_ns / distance) + 1)]


def _axis(layout: _Layout) -> Iterator[str]:
    longest_s = layout.step_time_ns / 1e9
    times = ticks(layout.step_time_ns)
    places = ((layout.x(ns), round_time_text(ns / 1e9, longest_s)) for ns in times)
    yield from upright_lines(places, _HEAD + _GROUP_HEIGHT - 4, layout.bottom + 4, 14)
    middle = layout.left + _CHART_WIDTH / 2
    yield written(middle, layout.bottom + 38, "time in the step", ' text-anchor="middle"')


def _legend(names: Mapping[str, str], num_chunks: int) -> tuple[list[str], float]:
    """The legend, and where it ends."""
    parts: list[str] = []
    x, y = float(_MARGIN), _HEAD - 22.0
    for kind, name in names.items():
        chunks = {0, num_chunks - 1} if kind in ("forward", "backward") else {0}
        fills = chain.from_iterable(_fills(kind, chunk, num_chunks) for chunk in sorted(chunks))
        for fill in fills:
            parts.append(f'<rect x="{x:.1f}" y="{y:.0f}" width="9" height="12" fill="{fill}"/>')
            x += 9
        text = name if len(chunks) == 1 else f"{name}, chunks 0-{num_chunks - 1}"
        parts.append(written(x + 6, y + 10, text))
        x += 26 + LETTER * len(text)
    parts.append(f'<rect x="{x:.1f}" y="{y:.0f}" width="18" height="12" fill="{_IDLE}"/>')
    parts.append(written(x + 24, y + 10, "idle"))
    x += 66
    ends = f'x1="{x:.1f}" y1="{y + 6:.0f}" x2="{x + 18:.1f}" y2="{y + 6:.0f}"'
    text = "critical path: what the step has to wait for; numbers and shades: micro-batches"
    parts += [f'<line {ends} class="c"/>', written(x + 24, y + 10, text)]
    return parts, x + 24 + LETTER * len(text)


_STYLE = (
    "text{font:11px sans-serif;fill:#222}"
    ".t{font-size:17px;font-weight:bold}.h{font-weight:bold}"
    ".n,.m{text-anchor:middle;font-size:10px}.n{fill:#fff}"
    f".c{{fill:none;stroke:{_CRITICAL};stroke-width:2.5;stroke-linejoin:round}}"
    ".g{stroke:#000;stroke-opacity:.15}"
)


def svg_picture(document: PlanDocument, step: Step) -> str:
    """The picture, for a document with a plan and its simulated step."""
    rows = rows_of(document, step)
    layout = _layout(document, rows, step)
    chunks = num_chunks(document)
    legend, legend_end = _legend(names_of(document, rows), chunks)
    width = max(layout.left + _CHART_WIDTH + 4 * _MARGIN, legend_end + _MARGIN)
    height = layout.bottom + 54
    title = f"{document.instance.workload.name}: one training step, "
    title += time_text(step.step_time_ns / 1e9)
    shape = document.shape
    plan = f"{shape_text(document, shape)}; {batches_text(document, shape)}; " if shape else ""
    parts = [
        written(_MARGIN, 50, plan + cluster_text(document.instance)),
        *legend,
        *(written(_MARGIN, y, text, ' class="h"') for y, text in layout.headings),
        *chain.from_iterable(map(_row, repeat(layout), rows, layout.tops, repeat(chunks))),
        *_axis(layout),
        _critical(layout, rows, step.critical_path),
    ]
    return picture(title, f"{width:.0f}", f"{height:.0f}", parts, _STYLE, title_y=30)
