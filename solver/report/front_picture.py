"""Throughput against cost of all clusters of a front: the picture, and the page around it.

Of subsets against the number of nodes. Points of the front are named. A line of steps joins them:
what they offer lies on it and above left of it. Dominated clusters are faint: full ones at their
best plan known, hollow ones where plans of theirs can be at best. All have tooltips.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from formulations.costs.renting import worthwhile_terms
from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import ClusterRecord, FrontDocument
from solver.report.chart import LETTER, Axis, Chart, picture, written
from solver.report.front import (
    Figures,
    cluster_name,
    cost_lines,
    cost_name,
    figures_of,
    point_table,
    search_lines,
    speed_name,
    subset_lines,
    within_gap,
)
from solver.report.html.page import section, sections_page
from solver.report.layout import Labelled, table_of
from solver.report.quantities import money, significant, time_text

_WIDTH, _HEIGHT = 860, 460
_LEFT, _TOP, _RIGHT = 96, 84, 150
_LINE = 13.0  # height of a name
_STYLE = (
    ".f{fill:none;stroke:#d62728;stroke-width:1.5}.best{fill:#d62728}.open{fill:#e39a2d}"
    ".known{fill:#4c86c6;fill-opacity:.35}.bound{fill:none;stroke:#4c86c6;stroke-opacity:.35}"
    ".other{fill:none;stroke:#3f9a5b;stroke-width:1.5}"
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


def front_picture(
    document: FrontDocument, others: Sequence[Mark] = (), other_name: str = ""
) -> str:
    """The picture; `others`: points that do not belong to the front, and what they are."""
    what = "nodes" if document.aim == "subsets" else f"USD for {cost_name(document)}"
    unsorted = (mark for cluster in document.clusters for mark in _marks(document, cluster))
    marks = sorted(unsorted, key=lambda mark: -mark.at.throughput)
    everything = [*marks, *others]
    chart = Chart(
        _axis([mark.at.throughput for mark in everything], "g"),
        _axis([mark.at.paid for mark in everything], ",g"),
        *(_LEFT, _TOP, _WIDTH, _HEIGHT),
    )
    shown = {kind: name for kind, name in _NAMES.items() if any(m.kind == kind for m in marks)}
    if others:
        shown["other"] = other_name
    parts: list[str] = []
    x = float(_LEFT)
    for kind, name in shown.items():
        parts.append(f'<circle cx="{x + 5:.1f}" cy="52" r="4" class="{kind}"/>')
        parts.append(written(x + 14, 56, name))
        x += 36 + LETTER * len(name)
    parts += chart.names(speed_name(document), what)

    def dot(mark: Mark) -> str:
        radius = 4 if mark.kind in ("best", "other") else 3
        return chart.dot(mark.at, radius, f'class="{mark.kind}"', mark.text)

    if everything:
        best = [mark for mark in marks if mark.kind == "best"]
        faint = [mark for mark in marks if mark.kind != "best"]
        parts += chart.grid()
        if best:
            # At every throughput the least cost, from the fastest, which the upper edge ends
            lowest = accumulate((mark.at.paid for mark in best), min)
            corners = zip((mark.at.throughput for mark in best), lowest, strict=True)
            edge = best[0].at.throughput, chart.up.high
            parts.append(chart.steps([edge, *corners], chart.across.low, 'class="f"'))
        parts += map(dot, (*faint, *others))
        parts += [*_names(chart, best), *map(dot, best)]
    title = (
        f"{document.family.instance.workload.name}: {len(document.clusters):,} clusters, "
        f"{len(document.points):,} on the front"
    )
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + 52
    return picture(title, width, height, parts, _STYLE, "front")


def _axis(values: Sequence[float], form: str) -> Axis:
    """Logarithmic, with some round ticks; what is free stands at the edge."""
    paid = [value for value in values if value > 0] or [1.0]
    low, high = min(paid) / 1.15, max(paid) * 1.15
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = next(steps for decades, steps in _STEPS if math.log10(high / low) >= decades)
    ticks = (factor * 10.0**power for power in powers for factor in factors)
    texts = [(tick, f"{tick:{form}}") for tick in ticks if low <= tick <= high]
    return Axis(low, high, texts, math.log)


def _marks(document: FrontDocument, cluster: ClusterRecord) -> Iterator[Mark]:
    """On all terms that keep some of the time; none for a cluster of which nothing is to show."""
    time_ns = cluster.step_time_ns if cluster.standing != "open" else cluster.bound_ns
    kind: _Kind = "known" if time_ns else "bound"
    if cluster.standing == "open":
        kind = "open"
    if not (time_ns := time_ns or cluster.bound_ns):
        return
    listed = next((point.terms for point in document.points if point.nodes == cluster.nodes), ())
    best = {terms.on_spot for terms in listed} if cluster.standing == "best" else set()
    for terms in worthwhile_terms(document.family.instance, cluster.nodes):
        if terms.slowdown > _SLOWEST and terms.on_spot not in best:
            continue
        name = cluster_name(document, cluster.nodes, terms.on_spot)
        at = figures_of(document, terms, time_ns / NANOSECONDS_PER_SECOND)
        text = f"{name}: {significant(at.throughput)} {speed_name(document)}"
        if document.aim == "subsets":
            at = at._replace(paid=sum(cluster.nodes))
        else:
            text += f", {money(at.paid)}"
        if cluster.dominated_by is not None:
            best_here = "" if cluster.step_time_ns else " at best"
            better = cluster_name(document, cluster.dominated_by)
            text += f"{best_here}; no better than {better}{within_gap(document)}"
        yield Mark("best" if terms.on_spot in best else kind, at, name, text)


def _names(chart: Chart, best: Sequence[Mark]) -> Iterator[str]:
    taken: list[tuple[float, float, float]] = []
    for mark in best:
        x, y = chart.x(mark.at.throughput), chart.y(mark.at.paid)
        end_x = x + LETTER * len(mark.name)
        free = all(
            abs(y - taken_y) >= _LINE or x >= taken_end_x or end_x <= taken_x
            for taken_x, taken_end_x, taken_y in taken
        )
        if free:
            taken.append((x, end_x, y))
            yield written(x + 8, y + 14, mark.name)


def front_page(document: FrontDocument) -> str:
    """Picture, points, and where all other clusters stand: one HTML file that is whole."""
    instance = document.family.instance
    lowest = "fewest nodes" if document.aim == "subsets" else "least cost"
    note = (
        f"The line is the {lowest} at a throughput. Dominated clusters are faint; hollow ones "
        "stand where plans of theirs can be at best."
    )
    lines = [*subset_lines(document), *cost_lines(document), *search_lines(document)]
    listed = {point.nodes for point in document.points}

    def time(time_ns: int | None) -> str:
        return "" if time_ns is None else time_text(time_ns / NANOSECONDS_PER_SECOND)

    def standing(cluster: ClusterRecord) -> str:
        if cluster.dominated_by is None:
            return cluster.standing.replace("infeasible", "no plan")
        return f"behind {cluster_name(document, cluster.dominated_by)}, by {cluster.closed_by}"

    others = table_of(
        (cluster for cluster in document.clusters if cluster.nodes not in listed),
        {"cluster": lambda cluster: cluster_name(document, cluster.nodes), "stands": standing},
        {
            "step": lambda cluster: time(cluster.step_time_ns),
            "at least": lambda cluster: time(cluster.bound_ns),
        },
    )
    parts = [
        section("Front", front_picture(document), note),
        section("Points", point_table(document)),
        section("Proof", Labelled(lines)),
        section("Other clusters", others),
    ]
    return sections_page(f"{instance.name}: {instance.workload.name}", parts)
