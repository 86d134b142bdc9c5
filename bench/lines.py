"""Panels of lines over a common axis of doubling numbers, as a hand-written SVG 1.1 picture."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.report.drawing import COLOURS, grid, key, key_width, picture, written

_WIDTH, _HEIGHT, _SPACE = 700, 220, 48
_LEFT, _TOP = 84, 66

Point = tuple[float, float]


@dataclass(frozen=True)
class Panel:
    """Lines over the common axis, by name; values from `ticks[0]` on, on a logarithmic axis.

    Smaller values are drawn on the lowest tick, so that 0 has a place. `show`: text of a tick.
    """

    axis: str
    ticks: Sequence[float]
    show: Callable[[float], str]
    lines: Mapping[str, Sequence[Point]]


@dataclass(frozen=True)
class _Axes:
    """Places in px of one panel. first, last: of the common axis."""

    panel: Panel
    top: float
    first: float
    last: float

    def x(self, value: float) -> float:
        """From left to right."""
        return _LEFT + _WIDTH * math.log(value / self.first) / math.log(self.last / self.first)

    def y(self, value: float) -> float:
        """From the lowest tick at the bottom to the highest."""
        low, high = self.panel.ticks[0], self.panel.ticks[-1]
        share = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return self.top + _HEIGHT * (1 - share)


def _grid(axes: _Axes, numbers: Sequence[float]) -> Iterator[str]:
    across = ((axes.x(number), f"{number:g}") for number in numbers)
    up = ((axes.y(tick), axes.panel.show(tick)) for tick in axes.panel.ticks)
    yield from grid(across, up, (_LEFT, axes.top), (_WIDTH, _HEIGHT))
    yield written(16, axes.top - 10, axes.panel.axis)


def _line(axes: _Axes, points: Sequence[Point], colour: str) -> Iterator[str]:
    places = [(axes.x(x), axes.y(y)) for x, y in sorted(points)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path class="c" stroke="{colour}" d="M{path}"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places)


def _panel(axes: _Axes, numbers: Sequence[float], colours: Mapping[str, str]) -> Iterator[str]:
    yield from _grid(axes, numbers)
    x = _LEFT + _WIDTH - sum(map(key_width, axes.panel.lines))
    for name, points in axes.panel.lines.items():
        yield from key(x, axes.top - 19, name, colours[name])
        yield from _line(axes, points, colours[name])
        x += key_width(name)


def line_picture(title: str, axis: str, panels: Sequence[Panel]) -> str:
    """A picture of the panels one below the other; equal names have equal colours.

    The common axis has a tick at every x of a point, of which there are two or more different
    ones, all above 0. At most four different names of lines.
    """
    lines = [line for panel in panels for line in panel.lines.values()]
    numbers = sorted({x for line in lines for x, _ in line})
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    colours = dict(zip(names, COLOURS, strict=False))
    height = _TOP + len(panels) * (_HEIGHT + _SPACE) + 12
    parts: list[str] = []
    for index, panel in enumerate(panels):
        top = _TOP + index * (_HEIGHT + _SPACE)
        parts.extend(_panel(_Axes(panel, top, numbers[0], numbers[-1]), numbers, colours))
    parts.append(written(_LEFT + _WIDTH / 2, height - 10, axis, ' text-anchor="middle"'))
    return picture(title, _LEFT + _WIDTH + 32, height, parts)
