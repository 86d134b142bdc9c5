"""Panels of lines over a common axis of doubling numbers, as a hand-written SVG 1.1 picture."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.report.chart import COLOURS, Axis, Chart, key, key_width, picture, written

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


def line_picture(title: str, axis: str, panels: Sequence[Panel]) -> str:
    """A picture of the panels one below the other; equal names have equal colours.

    The common axis has a tick at every x of a point, of which there are two or more different
    ones, all above 0. At most four different names of lines.
    """
    lines = [line for panel in panels for line in panel.lines.values()]
    numbers = sorted({x for line in lines for x, _ in line})
    across = Axis(numbers[0], numbers[-1], [(n, f"{n:g}") for n in numbers], math.log)
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    colours = dict(zip(names, COLOURS, strict=False))
    height = _TOP + len(panels) * (_HEIGHT + _SPACE) + 12
    parts: list[str] = []
    for index, panel in enumerate(panels):
        ticks = [(tick, panel.show(tick)) for tick in panel.ticks]
        up = Axis(panel.ticks[0], panel.ticks[-1], ticks, math.log)
        top = _TOP + index * (_HEIGHT + _SPACE)
        chart = Chart(across, up, _LEFT, top, _WIDTH, _HEIGHT)
        parts += [*chart.grid(), written(16, top - 10, panel.axis)]
        x = _LEFT + _WIDTH - sum(map(key_width, panel.lines))
        for name, points in panel.lines.items():
            parts += [*key(x, top - 19, name, colours[name]), *_line(chart, points, colours[name])]
            x += key_width(name)
    parts.append(written(_LEFT + _WIDTH / 2, height - 10, axis, ' text-anchor="middle"'))
    return picture(title, _LEFT + _WIDTH + 32, height, parts)


def _line(chart: Chart, points: Sequence[Point], colour: str) -> Iterator[str]:
    """Through all points, with a dot on each."""
    path = "L".join(f"{chart.x(x):.1f} {chart.y(y):.1f}" for x, y in sorted(points))
    yield f'<path class="c" stroke="{colour}" d="M{path}"/>'
    for point in sorted(points):
        yield chart.dot(point, 3.5, f'fill="{colour}"')
