"""A switch as a hand-written SVG 1.1 picture.

Bars of time: the plan, what no plan goes below, the published rule. Below them, what GPUs send and
receive, inside their node and between nodes; GPUs of a node with equal volumes share a row. All
bars have tooltips.
"""

from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape

from solver.report.chart import LETTER, key, key_width, picture, round_ticks, upright_lines, written
from solver.report.quantities import Unit, ranges, round_time_text, size_unit, time_text
from solver.switch_document import SwitchDocument, Volumes

#: Rows of a table; what busy GPUs send and receive stands before the rest.
MOST_ROWS = 40
#: Volumes of a GPU in the order of the columns.
COLUMNS = ("sent inside", "sent between", "received inside", "received between")
_WIDTH, _RIGHT, _TOP = 760, 110, 64
_BAR, _STEP, _GAP = 11, 28, 76  # height of a bar, of a row, and between the two charts
_INSIDE, _BETWEEN = "#86b3e3", "#e39a2d"
_TIMES = (("this plan", "#3f9a5b"), ("no plan below", "#7a7a7a"), ("published rule", "#b5567f"))


def device_rows(document: SwitchDocument) -> list[tuple[str, Volumes]]:
    """GPUs and their volumes, bytes; GPUs of a node with equal volumes share a row."""
    alike: dict[tuple[str, Volumes], list[int]] = {}
    for device in document.devices:
        node, _, gpu = device.gpu.rpartition(":")
        alike.setdefault((node, device.volumes), []).append(int(gpu))
    return [(f"{node}: {ranges(gpus)}", volumes) for (node, volumes), gpus in alike.items()]


def few_rows(document: SwitchDocument) -> list[tuple[str, Volumes]]:
    """As `device_rows`, those beyond MOST_ROWS as one with the largest volumes."""
    rows = device_rows(document)
    if len(rows) <= MOST_ROWS:
        return rows
    rest = rows[MOST_ROWS - 1 :]
    sent, away, received, into = (max(row[1][n] for row in rest) for n in range(4))
    more = f"{len(rest)} more rows, at most", (sent, away, received, into)
    return [*rows[: MOST_ROWS - 1], more]


def switch_picture(document: SwitchDocument) -> str:
    """The picture."""
    moves = "parameters and gradients" if document.moves == "both" else document.moves
    title = f"{document.workload.name}: switch of {moves}"
    rows = few_rows(document)
    if not rows:
        return picture(f"{title}: nothing moves", _WIDTH, _TOP, ())
    left = 32 + LETTER * max(len(name) for name, _ in (*_TIMES, *rows))
    second = _TOP + 3 * _STEP + _GAP
    moved = f'<g transform="translate({left:.0f} 0)">'  # all is drawn from the axes on
    parts = [moved, *_times(document), *_volumes(rows, second), "</g>"]
    return picture(title, left + _WIDTH + _RIGHT, second + _STEP * len(rows) + 40, parts)


def _times(document: SwitchDocument) -> Iterator[str]:
    times = document.time_s, document.lower_bound_s, document.published_s
    ticks, longest = round_ticks(max(times)), max(times)
    yield from _axis(ticks, _TOP, 3, lambda tick: round_time_text(round(tick, 12), longest))
    for n, ((name, fill), time_s) in enumerate(zip(_TIMES, times, strict=True)):
        y, width = _TOP + n * _STEP + 4, _WIDTH * time_s / ticks[-1]
        yield _name(name, y)
        yield _bar(0, y, width, 18, fill, f"{name}: {time_text(time_s, longest)}")
        yield written(width + 6, y + _BAR + 3, time_text(time_s, longest))


def _volumes(rows: Sequence[tuple[str, Volumes]], top: float) -> Iterator[str]:
    """Two bars a row: sent above, received below."""
    largest = max(max(sum(volumes[:2]), sum(volumes[2:])) for _, volumes in rows)
    unit = size_unit(largest)
    ticks = round_ticks(largest / unit.factor)
    yield from _axis(
        ticks, top, len(rows), lambda tick: f"{round(tick, 12):g} {unit.name}" if tick else "0"
    )
    x = 0.0
    for name, fill in (("inside nodes", _INSIDE), ("between nodes", _BETWEEN)):
        yield from key(x, top - 26, name, fill)
        x += key_width(name)
    yield written(x, top - 17, "sent above, received below")
    scale = _WIDTH / ticks[-1] / unit.factor
    for n, (name, volumes) in enumerate(rows):
        y = top + n * _STEP + 3
        yield _name(name, y)
        for half in (0, 2):
            yield from _halves(name, volumes, half, y + half // 2 * _BAR, scale, unit)


def _halves(
    name: str, volumes: Volumes, half: int, y: float, scale: float, unit: Unit
) -> Iterator[str]:
    """What is sent, or received, inside nodes and behind it between nodes."""
    x = 0.0
    for column, fill in ((half, _INSIDE), (half + 1, _BETWEEN)):
        width = scale * volumes[column]
        if width:
            words = f"{name}: {COLUMNS[column]} {unit.text(volumes[column])}"
            yield _bar(x, y, width, _BAR - 1, fill, words)
        x += width


def _name(name: str, y: float) -> str:
    return written(-10, y + _BAR + 3, name, ' text-anchor="end"')


def _bar(x: float, y: float, width: float, height: float, fill: str, words: str) -> str:
    place = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height}"'
    return f'<rect {place} fill="{fill}"><title>{escape(words)}</title></rect>'


def _axis(
    ticks: Sequence[float], top: float, rows: int, text: Callable[[float], str]
) -> Iterator[str]:
    """Lines behind the rows, with their names below."""
    places = ((_WIDTH * tick / ticks[-1], text(tick) if tick else "0") for tick in ticks)
    yield from upright_lines(places, top - 4, top + rows * _STEP + 4, 14)
