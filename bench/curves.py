"""Cumulative distributions of relative distances as a hand-written SVG 1.1 picture."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from solver.report.drawing import COLOURS, grid, key, key_width, picture, written

_WIDTH, _HEIGHT = 760, 380
_LEFT, _TOP = 64, 66
_TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_FINEST = 0.1  # per cent: below this the axis is linear, above it logarithmic


def _stretch(percent: float) -> float:
    return math.log1p(percent / _FINEST)


class _Axes:
    """Places in px of distances in per cent up to `most`, and of shares 0 to 1."""

    def __init__(self, most: float) -> None:
        self.end = next((tick for tick in _TICKS if tick >= max(most, 1)), most)

    def x(self, percent: float) -> float:
        return _LEFT + _WIDTH * _stretch(percent) / _stretch(self.end)

    def y(self, share: float) -> float:
        return _TOP + _HEIGHT * (1 - share)


def _grid(axes: _Axes) -> Iterator[str]:
    across = ((axes.x(tick), f"{tick:g} %") for tick in _TICKS if tick <= axes.end)
    up = ((axes.y(tenth / 10), f"{10 * tenth} %") for tenth in range(0, 11, 2))
    yield from grid(across, up, (_LEFT, _TOP), (_WIDTH, _HEIGHT))


def steps(distances: Sequence[float]) -> list[tuple[float, float]]:
    """(distance, share of the distances that are at most this), once per distinct distance."""
    found = sorted(distances)
    return [(value, bisect_right(found, value) / len(found)) for value in dict.fromkeys(found)]


def _curve(axes: _Axes, distances: Sequence[float], colour: str) -> str:
    path = [f"M{axes.x(0):.1f} {axes.y(0):.1f}"]
    for value, share in steps(distances):
        path.append(f"H{axes.x(100 * value):.1f}V{axes.y(share):.1f}")
    path.append(f"H{axes.x(axes.end):.1f}")
    return f'<path class="c" stroke="{colour}" d="{"".join(path)}"/>'


def distribution_picture(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """A picture of one curve per name: the share of its distances (0.05: 5 %) up to each one.

    At most four non-empty curves; distances are at least 0.
    """
    axes = _Axes(100 * max(max(distances) for distances in curves.values()))
    parts = [
        *_grid(axes),
        written(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 38, axis, ' text-anchor="middle"'),
    ]
    x = float(_LEFT)
    for (name, distances), colour in zip(curves.items(), COLOURS, strict=False):
        parts += [*key(x, 44, name, colour), _curve(axes, distances, colour)]
        x += key_width(name)
    return picture(title, _LEFT + _WIDTH + 32, _TOP + _HEIGHT + 52, parts)
