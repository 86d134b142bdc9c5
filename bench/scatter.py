"""Pairs of figures that should be equal, on logarithmic axes, as a hand-written SVG 1.1 picture."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from solver.report.drawing import COLOURS, grid, key, key_width, picture, written

_SIZE = 420
_LEFT, _TOP = 72, 66
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_BANDS = (0.9, 1.1)


class Point(NamedTuple):
    """One pair, and the name of what it belongs to."""

    name: str
    x: float
    y: float


class _Axes:
    """Places in px of both figures, over ticks that hold all points."""

    def __init__(self, points: Sequence[Point]) -> None:
        values = [value for point in points for value in point[1:]]
        low = max((tick for tick in _TICKS if tick <= min(values)), default=_TICKS[0])
        high = min((tick for tick in _TICKS if tick >= max(values)), default=_TICKS[-1])
        self.low, self.high = low, high

    def share(self, value: float) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)

    def x(self, value: float) -> float:
        return _LEFT + _SIZE * self.share(value)

    def y(self, value: float) -> float:
        return _TOP + _SIZE * (1 - self.share(value))

    @property
    def ticks(self) -> list[float]:
        return [tick for tick in _TICKS if self.low <= tick <= self.high]


def _grid(axes: _Axes) -> Iterator[str]:
    across = ((axes.x(tick), f"{tick:g}") for tick in axes.ticks)
    up = ((axes.y(tick), f"{tick:g}") for tick in axes.ticks)
    yield from grid(across, up, (_LEFT, _TOP), (_SIZE, _SIZE))


def _line(axes: _Axes, factor: float) -> str:
    """Where y is `factor` times x; dashed unless they are equal."""
    start, end = max(axes.low, axes.low / factor), min(axes.high, axes.high / factor)
    dashes = "" if factor == 1 else ' stroke-dasharray="4 4"'
    return (
        f'<line x1="{axes.x(start):.1f}" y1="{axes.y(factor * start):.1f}" '
        f'x2="{axes.x(end):.1f}" y2="{axes.y(factor * end):.1f}" stroke="#888"{dashes}/>'
    )


def scatter_picture(title: str, x_axis: str, y_axis: str, points: Sequence[Point]) -> str:
    """A picture of the points, the diagonal, and 10 % to both sides; at most four names."""
    axes, names = _Axes(points), list(dict.fromkeys(point.name for point in points))
    colours = dict(zip(names, COLOURS, strict=False))
    parts = [
        *_grid(axes),
        *(_line(axes, factor) for factor in (1.0, *_BANDS)),
        written(_LEFT + _SIZE / 2, _TOP + _SIZE + 38, x_axis, ' text-anchor="middle"'),
        written(_LEFT, _TOP - 6, f"{y_axis}; dashed: 10 % above and below"),
    ]
    right = _LEFT + _SIZE + 24
    for row, (name, colour) in enumerate(colours.items()):
        parts += key(right, _TOP + 20 * row, name, colour)
    parts += [
        f'<circle cx="{axes.x(one.x):.1f}" cy="{axes.y(one.y):.1f}" r="4" fill="none" '
        f'stroke="{colours[one.name]}" stroke-width="1.5"/>'
        for one in points
    ]
    width = right + max(map(key_width, names))
    return picture(title, width, _TOP + _SIZE + 52, parts)
