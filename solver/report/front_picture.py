"""Throughput against cost of all clusters of a front as a hand-written SVG 1.1 picture.

Of subsets against the number of nodes. Points of the front are named. A line of steps joins them:
what they offer lies on it and above left of it. Dominated clusters are faint: full ones at their
best plan known, hollow ones where plans of theirs can be at best. All have tooltips.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal
from xml.sax.saxutils import escape

from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import ClusterRecord, FrontDocument
from solver.report.drawing import LETTER, grid, picture, written
from solver.report.front import (
    Figures,
    cluster_name,
    cost_lines,
    cost_name,
    figures_of,
    point_rows,
    search_lines,
    speed_name,
    subset_lines,
    terms_of_cluster,
    within_gap,
)
from solver.report.html.page import lines_table, section, sections_page, text_table
from solver.report.quantities import money, significant, time_text

_WIDTH, _HEIGHT = 860, 460
_LEFT, _TOP, _RIGHT = 96, 84, 150
_LINE = 13.0  # height of a name
_STYLE = (
    ".front text{font:11px sans-serif;fill:#222}.front .t{font-size:17px;font-weight:bold}"
    ".front .g{stroke:#000;stroke-opacity:.15}"
    ".front .f{fill:none;stroke:#d62728;stroke-width:1.5}.front .best{fill:#d62728}"
    ".front .known{fill:#4c86c6;fill-opacity:.35}"
    ".front .bound{fill:none;stroke:#4c86c6;stroke-opacity:.35}.front .open{fill:#e39a2d}"
    ".front .other{fill:none;stroke:#3f9a5b;stroke-width:1.5}"
)
_Kind = Literal["best", "known", "bound", "open", "other"]
_NAMES: dict[_Kind, str] = {
    "best": "front",
    "known": "dominated",
    "bound": "dominated: at best here",
    "open": "open: at best here",
}


#: Nodes that keep less than a thousandth of their time are beyond the axes.
_SLOWEST = 1000.0

#: Number of powers of ten from which on these of their multiples have a tick.
_STEPS = (
    (3, (1,)),
    (1, (1, 2, 5)),
    (0.4, (1, 1.5, 2, 3, 4, 5, 6, 8)),
    (0, (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)),
)


@dataclass(frozen=True)
class Mark:
    """A place in the picture; `text`: of its tooltip."""

    kind: _Kind
    at: Figures
    name: str
    text: str


@dataclass(frozen=True)
class _Axis:
    """Logarithmic, with some round ticks."""

    low: float
    high: float

    @property
    def ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high / self.low)
        steps = next(steps for least, steps in _STEPS if decades >= least)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [tick for tick in found if self.low <= tick <= self.high]

    def share(self, value: float) -> float:
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)


def _axis(values: Sequence[float]) -> _Axis:
    known = [value for value in values if value > 0] or [1.0]  # what is free stands at the edge
    return _Axis(min(known) / 1.15, max(known) * 1.15)


def _marks(document: FrontDocument, one: ClusterRecord) -> Iterator[Mark]:
    """On all terms that keep some of the time; none for a cluster of which nothing is to show."""
    time_ns = one.step_time_ns if one.standing != "open" else one.bound_ns
    kind: _Kind = "bound" if time_ns is None else "known"
    if one.standing == "open":
        kind = "open"
    time_ns = time_ns or one.bound_ns
    if not time_ns:
        return
    listed = next((point.terms for point in document.points if point.nodes == one.nodes), ())
    best = {terms.on_spot for terms in listed} if one.standing == "best" else set()
    for terms in terms_of_cluster(document, one.nodes):
        if terms.slowdown > _SLOWEST and terms.on_spot not in best:
            continue
        name = cluster_name(document, one.nodes, terms.on_spot)
        at = figures_of(document, terms, time_ns / NANOSECONDS_PER_SECOND)
        speed = f"{significant(at.throughput)} {speed_name(document)}"
        text = f"{name}: {speed}"
        if document.aim == "subsets":
            at = at._replace(paid=sum(one.nodes))
        else:
            text += f", {money(at.paid)}"
        if one.dominated_by is not None:
            best_here = "" if one.step_time_ns else " at best"
            better = cluster_name(document, one.dominated_by)
            text += f"{best_here}; no better than {better}{within_gap(document)}"
        yield Mark("best" if terms.on_spot in best else kind, at, name, text)


class _Page:
    """Places in px of throughputs and costs."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.across = _axis([mark.at.throughput for mark in marks])
        self.up = _axis([mark.at.paid for mark in marks])

    def x(self, throughput: float) -> float:
        return _LEFT + _WIDTH * self.across.share(throughput)

    def y(self, paid: float) -> float:
        return _TOP + _HEIGHT * (1 - self.up.share(paid))


def _grid(page: _Page) -> Iterator[str]:
    across = ((page.x(tick), f"{tick:g}") for tick in page.across.ticks)
    up = ((page.y(tick), f"{tick:,g}") for tick in page.up.ticks)
    yield from grid(across, up, (_LEFT, _TOP), (_WIDTH, _HEIGHT))


def _dot(page: _Page, mark: Mark) -> str:
    radius = 4 if mark.kind in ("best", "other") else 3
    return (
        f'<circle cx="{page.x(mark.at.throughput):.1f}" cy="{page.y(mark.at.paid):.1f}" '
        f'r="{radius}" class="{mark.kind}"><title>{escape(mark.text)}</title></circle>'
    )


def _stairs(page: _Page, best: Sequence[Mark]) -> Iterator[str]:
    """At every throughput the least cost, from the fastest point, which the upper edge ends."""
    x = [page.x(mark.at.throughput) for mark in best]
    lowest = accumulate((page.y(mark.at.paid) for mark in best), max)
    path = "".join(f"V{y:.1f}H{left:.1f}" for y, left in zip(lowest, [*x[1:], _LEFT], strict=True))
    if best:
        yield f'<path class="f" d="M{x[0]:.1f},{_TOP}{path}"/>'


def _names(page: _Page, best: Sequence[Mark]) -> Iterator[str]:
    """Those of the points, where there is room."""
    taken: list[tuple[float, float, float]] = []
    for mark in best:
        x, y = page.x(mark.at.throughput), page.y(mark.at.paid)
        width = LETTER * len(mark.name)
        free = all(
            abs(y - other) >= _LINE or x >= end or x + width <= start for start, end, other in taken
        )
        if free:
            taken.append((x, x + width, y))
            yield written(x + 8, y + 14, mark.name)


def _legend(names: dict[_Kind, str]) -> Iterator[str]:
    x = float(_LEFT)
    for kind, name in names.items():
        yield f'<circle cx="{x + 5:.1f}" cy="52" r="4" class="{kind}"/>'
        yield written(x + 14, 56, name)
        x += 36 + LETTER * len(name)


def front_picture(
    document: FrontDocument, others: Sequence[Mark] = (), other_name: str = ""
) -> str:
    """The picture; `others`: points that do not belong to the front, and what they are."""
    what = "nodes" if document.aim == "subsets" else f"USD for {cost_name(document)}"
    known = (mark for one in document.clusters for mark in _marks(document, one))
    marks = sorted(known, key=lambda mark: -mark.at.throughput)
    everything = [*marks, *others]
    workload = document.family.instance.workload.name
    title = (
        f"{workload}: {len(document.clusters):,} clusters, {len(document.points):,} on the front"
    )
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + 52
    shown = {kind: name for kind, name in _NAMES.items() if any(m.kind == kind for m in marks)}
    if others:
        shown["other"] = other_name
    body: list[str] = []
    if everything:
        page = _Page(everything)
        best = [mark for mark in marks if mark.kind == "best"]
        faint = [mark for mark in marks if mark.kind != "best"]
        body = [
            *_grid(page),
            *_stairs(page, best),
            *(_dot(page, mark) for mark in (*faint, *others)),
            *_names(page, best),
            *(_dot(page, mark) for mark in best),
        ]
    parts = [
        *_legend(shown),
        written(_LEFT, _TOP - 10, what),
        written(_LEFT + _WIDTH / 2, height - 14, speed_name(document), ' text-anchor="middle"'),
        *body,
    ]
    return picture(title, width, height, parts, _STYLE, "front")


def front_page(document: FrontDocument) -> str:
    """One HTML file that needs nothing else."""
    instance = document.family.instance
    title = f"{instance.name}: {instance.workload.name}"
    least = "fewest nodes" if document.aim == "subsets" else "least cost"
    note = (
        f"The line is the {least} at a throughput. Dominated clusters are faint; hollow ones "
        "stand where plans of theirs can be at best."
    )
    lines = [*subset_lines(document), *cost_lines(document), *search_lines(document)]
    parts = [
        section("Front", front_picture(document), note),
        section("Points", _points(document)),
        section("Proof", lines_table(lines)),
        section("Other clusters", _others(document)),
    ]
    return sections_page(title, parts)


def _points(document: FrontDocument) -> str:
    texts, numbers, rows = point_rows(document)
    return text_table([*texts, *numbers], rows)


def _others(document: FrontDocument) -> str:
    listed = {point.nodes for point in document.points}
    rows = [_row(document, one) for one in document.clusters if one.nodes not in listed]
    return text_table(["cluster", "stands", "step", "at least"], rows)


def _row(document: FrontDocument, one: ClusterRecord) -> list[str]:
    times = [
        "" if ns is None else time_text(ns / NANOSECONDS_PER_SECOND)
        for ns in (one.step_time_ns, one.bound_ns)
    ]
    standing = one.standing.replace("infeasible", "no plan")
    if one.dominated_by is not None:
        standing = f"behind {cluster_name(document, one.dominated_by)}, by {one.closed_by}"
    return [cluster_name(document, one.nodes), standing, *times]
