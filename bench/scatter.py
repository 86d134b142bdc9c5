"""Pairs of figures that should be equal, on logarithmic axes, as a hand-written SVG 1.1 picture."""

import math
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from solver.report.chart import COLOURS, Axis, Chart, key, key_width, picture

_SIZE = 420
_LEFT, _TOP = 72, 66
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_BANDS = (0.9, 1.1)
_COLOURS = (*COLOURS, "#17a2b8", "#8c564b", "#e377c2", "#bcbd22", "#1f3b73", "#000000")


class Point(NamedTuple):
    """One pair, and the name of what it belongs to."""

    name: str
    x: float
    y: float


def scatter_picture(title: str, x_axis: str, y_axis: str, points: Sequence[Point]) -> str:
    """A picture of the points, the diagonal, and 10 % to both sides.

    Names beyond the colours have these once more.
    """
    values = [value for point in points for value in point[1:]]
    low = max((tick for tick in _TICKS if tick <= min(values)), default=_TICKS[0])
    high = min((tick for tick in _TICKS if tick >= max(values)), default=_TICKS[-1])
    ticks = [(tick, f"{tick:g}") for tick in _TICKS if low <= tick <= high]
    axis = Axis(low, high, ticks, math.log)
    chart = Chart(axis, axis, _LEFT, _TOP, _SIZE, _SIZE)
    parts = [*chart.grid(), *(_line(chart, factor) for factor in (1.0, *_BANDS))]
    parts += chart.names(x_axis, f"{y_axis}; dashed: 10 % above and below")
    names = list(dict.fromkeys(point.name for point in points))
    colours = dict(zip(names, cycle(_COLOURS), strict=False))
    right = _LEFT + _SIZE + 24
    for row, (name, colour) in enumerate(colours.items()):
        parts += key(right, _TOP + 20 * row, name, colour)
    for point in points:
        style = f'fill="none" stroke="{colours[point.name]}" stroke-width="1.5"'
        parts.append(chart.dot((point.x, point.y), 3, style))
    width = right + max(map(key_width, names))
    return picture(title, width, _TOP + _SIZE + 52, parts)


def _line(chart: Chart, factor: float) -> str:
    """Where y is `factor` times x; dashed unless they are equal."""
    low, high = chart.up.low, chart.up.high
    start, end = max(low, low / factor), min(high, high / factor)
    dashes = "" if factor == 1 else ' stroke-dasharray="4 4"'
    return (
        f'<line x1="{chart.x(start):.1f}" y1="{chart.y(factor * start):.1f}" '
        f'x2="{chart.x(end):.1f}" y2="{chart.y(factor * end):.1f}" stroke="#888"{dashes}/>'
    )
