"""Charts by matplotlib as SVG files; it is imported when the first is drawn.

Text stays text, and the same figures give the same file.
"""

import io
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Of lines and points, in their order: Okabe and Ito's, which all eyes can tell apart.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#7a7a7a")
INK = "#222222"  #: of text and axes
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hetplan",
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.4,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
}
_METADATA = ("Date", "Creator", "Format", "Type")
_DECADES = 1.5  # from here on a logarithmic axis has ticks at 1, 2 and 5 times powers of ten

Draw = Callable[["Axes"], None]


def picture(
    title: str, *panels: Draw, columns: int = 1, size: tuple[float, float] = (9.4, 4.8)
) -> str:
    """An SVG file of the panels, row by row below a title; `size`: of one, width and height in."""
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        rows = -(-len(panels) // columns)
        figure = Figure((size[0] * columns, size[1] * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for draw, panel in zip(panels, axes, strict=False):
            draw(panel)
        for unused in axes[len(panels) :]:
            unused.set_axis_off()
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(_METADATA))
        return file.getvalue()


def inline(svg: str, name: str) -> str:
    """A picture as a part of a page, in the colours of its text; `name`: read out in its place."""
    part = svg[svg.index("<svg") :].replace("<svg ", f'<svg role=img aria-label="{name}" ', 1)
    return part.replace(INK, "currentColor").replace("fill: #ffffff", "fill: none")


def log_axis(
    axes: "Axes", name: Literal["x", "y"], low: float, high: float, form: str = ",g"
) -> None:
    """Makes an axis logarithmic from low to high, with round numbers: of `form` as in `format`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis: Axis = getattr(axes, f"{name}axis")
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    wide = math.log10(high / low) >= _DECADES
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(7))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format(value, form)))
