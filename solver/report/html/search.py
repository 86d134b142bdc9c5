"""How plan and bound came together: a chart of the search, drawn as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from solver.document import PlanDocument
from solver.report.quantities import percent, significant

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 700, 226, 60, 46
_APART = 24  #: between lines with a number, so that phones can have larger ones
Point = tuple[float, float]  #: seconds; share of the objective of the best plan


def search_chart(document: PlanDocument) -> str:
    """The best plan and the bound after every moment that was noted; empty if there are none."""
    step_s = document.step_time_s
    plans = [(one.elapsed_s, one.step_time_s) for one in document.history if one.step_time_s]
    bounds = [(one.elapsed_s, one.bound) for one in document.history if one.bound is not None]
    if not step_s or not plans or not bounds:
        return ""
    shares = [(at_s, time_s / step_s) for at_s, time_s in plans]
    highest = accumulate((share for _, share in bounds), max)
    rising = [(at_s, share) for (at_s, _), share in zip(bounds, highest, strict=True)]
    top = max(1.02, min(max(share for _, share in shares), 2.0))
    low = max(0.0, min(share for _, share in rising) - 0.02)
    end_s = max(document.runtime_s, shares[-1][0], rising[-1][0])

    def path(points: Sequence[Point]) -> str:
        corners = [(at_s, min(share, top)) for at_s, share in points]
        steps = [f"M{_x(corners[0][0], end_s):.1f} {_y(corners[0][1], low, top):.1f}"]
        for at_s, share in corners[1:]:
            steps.append(f"H{_x(at_s, end_s):.1f}V{_y(share, low, top):.1f}")
        return "".join([*steps, f"H{_x(end_s, end_s):.1f}"])

    marks = "".join(
        f'<line class=grid x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(share, low, top):.1f}" '
        f'y2="{_y(share, low, top):.1f}"/><text x="{_LEFT - 6}" y="{_y(share, low, top) + 4:.1f}" '
        f'text-anchor="end">{escape(percent(share))}</text>'
        for share in sorted({low, 1.0, top})
        if share == 1.0 or abs(_y(share, low, top) - _y(1.0, low, top)) > _APART
    )
    times = "".join(
        f'<text x="{_x(at_s, end_s):.1f}" y="{_HEIGHT - 26}" text-anchor="middle">'
        f"{escape(significant(at_s, 2))} s</text>"
        for at_s in (0.0, end_s / 2, end_s)
    )
    return (
        f'<svg class=search viewBox="0 0 {_WIDTH + 30} {_HEIGHT}" role=img '
        f'aria-label="best plan and bound against search time">{marks}{times}'
        f'<text x="{_LEFT}" y="{_HEIGHT - 5}">search time; 100 % is the best plan in the end</text>'
        f'<path class=plans d="{path(shares)}"/><path class=bounds d="{path(rising)}"/></svg>'
        "<ul class=legend><li><i class=t1></i>best plan so far</li>"
        "<li><i class=t0></i>proved: no plan is below</li></ul>"
    )


def _x(at_s: float, end_s: float) -> float:
    return _LEFT + (_WIDTH - _LEFT) * (at_s / end_s if end_s else 1.0)


def _y(share: float, low: float, top: float) -> float:
    return 10 + (_HEIGHT - _BOTTOM - 10) * (top - share) / (top - low)
