"""Pairs of figures that should be equal, as a picture on logarithmic axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from solver.report.chart import COLOURS, log_axis, picture

_BANDS = (0.9, 1.1)


class Point(NamedTuple):
    """One pair, and the name of what it belongs to."""

    name: str
    x: float
    y: float


def scatter_picture(title: str, x_axis: str, y_axis: str, points: Sequence[Point]) -> str:
    """A picture of the points, the diagonal, and 10 % to both sides."""
    values = [value for point in points for value in point[1:]]
    low, high = min(values) / 1.2, max(values) * 1.2

    def draw(axes: Axes) -> None:
        log_axis(axes, "x", low, high, "g")
        log_axis(axes, "y", low, high, "g")
        for factor in (1.0, *_BANDS):
            style = "-" if factor == 1 else "--"
            axes.plot([low, high], [factor * low, factor * high], style, color="#888", linewidth=1)
        # Names beyond the colours have these once more, with another marker
        for n, name in enumerate(dict.fromkeys(point.name for point in points)):
            places = [point[1:] for point in points if point.name == name]
            marker = "os^Dv"[n // len(COLOURS) % 5]
            colour, (xs, ys) = COLOURS[n % len(COLOURS)], zip(*places, strict=True)
            hollow: dict[str, Any] = {"color": colour, "markerfacecolor": "none", "markersize": 4}
            axes.plot(xs, ys, marker, label=name, **hollow)
        axes.set(xlabel=x_axis, ylabel=f"{y_axis}; dashed: 10 % above and below", aspect="equal")
        axes.figure.legend(loc="outside right upper")

    return picture(title, draw, size=(9.0, 6.0))
