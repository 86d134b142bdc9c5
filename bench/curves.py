"""Cumulative distributions of relative distances as a hand-written SVG 1.1 picture."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from solver.report.chart import COLOURS, Axis, Chart, key, key_width, picture

_WIDTH, _HEIGHT = 760, 380
_LEFT, _TOP = 64, 66
_TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_FINEST = 0.1  # per cent: below this the axis is linear, above it logarithmic


def _stretch(percent: float) -> float:
    return math.log1p(percent / _FINEST)


def steps(distances: Sequence[float]) -> list[tuple[float, float]]:
    """(distance, share of the distances that are at most this), once per distinct distance."""
    ascending = sorted(distances)
    return [
        (value, bisect_right(ascending, value) / len(ascending))
        for value in dict.fromkeys(ascending)
    ]


def distribution_picture(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """A picture of one curve per name: the share of its distances (0.05: 5 %) up to each one.

    At most four non-empty curves; distances are at least 0.
    """
    largest = 100 * max(max(distances) for distances in curves.values())
    end = next((tick for tick in _TICKS if tick >= max(largest, 1)), largest)
    across = Axis(0, end, [(tick, f"{tick:g} %") for tick in _TICKS if tick <= end], _stretch)
    up = Axis(0, 1, [(tenth / 10, f"{10 * tenth} %") for tenth in range(0, 11, 2)])
    chart = Chart(across, up, _LEFT, _TOP, _WIDTH, _HEIGHT)
    parts = [*chart.grid(), *chart.names(axis, "")]
    x = float(_LEFT)
    for (name, distances), colour in zip(curves.items(), COLOURS, strict=False):
        points = [(0.0, 0.0), *((100 * value, share) for value, share in steps(distances))]
        curve = chart.steps(points, end, f'class="c" stroke="{colour}"')
        parts += [*key(x, 44, name, colour), curve]
        x += key_width(name)
    return picture(title, _LEFT + _WIDTH + 32, _TOP + _HEIGHT + 52, parts)
