"""Throughput against cost of all clusters of a front: the picture, and the page around it.

Of subsets against the number of nodes. Points of the front are named. A line of steps joins them:
what they offer lies on it and above left of it. Dominated clusters are faint: full ones at their
best plan known, hollow ones where plans of theirs can be at best.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from formulations.costs.renting import worthwhile_terms
from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import ClusterRecord, FrontDocument
from solver.report.chart import COLOURS, inline, log_axis, picture
from solver.report.front import (
    Figures,
    cluster_name,
    cost_lines,
    cost_name,
    figures_of,
    point_table,
    search_lines,
    sequences_name,
    subset_lines,
)
from solver.report.html.page import section, sections_page
from solver.report.layout import Labelled, table_of
from solver.report.quantities import time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Kind = Literal["best", "known", "bound", "open", "theirs"]
#: Name in the key, and how its places are drawn.
_KINDS: dict[_Kind, tuple[str, dict[str, Any]]] = {
    "known": ("dominated", {"color": COLOURS[1], "alpha": 0.35, "s": 14}),
    "bound": (
        "dominated: at best here",
        {"edgecolor": COLOURS[1], "facecolor": "none", "alpha": 0.35, "s": 14},
    ),
    "open": ("open: at best here", {"color": COLOURS[4], "s": 14}),
    "theirs": ("", {"edgecolor": COLOURS[2], "facecolor": "none", "s": 26}),
    "best": ("front", {"color": COLOURS[0], "s": 26, "zorder": 3}),
}

#: Nodes that keep less than a thousandth of their time are beyond the axes.
_SLOWEST = 1000.0


@dataclass(frozen=True)
class Mark:
    """A place in the picture."""

    kind: _Kind
    at: Figures
    name: str


def front_picture(
    document: FrontDocument, others: Sequence[Mark] = (), other_name: str = ""
) -> str:
    """The picture; `others`: points that do not belong to the front, and what they are."""
    title = (
        f"{document.family.instance.workload.name}: {len(document.clusters):,} clusters, "
        f"{len(document.points):,} on the front"
    )
    return picture(title, lambda axes: draw_front(axes, document, others, other_name))


def draw_front(
    axes: "Axes", document: FrontDocument, others: Sequence[Mark] = (), other_name: str = ""
) -> None:
    """The same on axes of matplotlib."""
    nodes = document.aim == "subsets"
    axes.set_xlabel(f"{sequences_name(document)}/s")
    axes.set_ylabel("nodes" if nodes else f"USD for {cost_name(document)}")
    unsorted = (mark for cluster in document.clusters for mark in _marks(document, cluster))
    marks = [*sorted(unsorted, key=lambda mark: -mark.at.throughput), *others]
    if not marks:
        return
    log_axis(axes, "x", *_range(mark.at.throughput for mark in marks))
    lowest, highest = _range(mark.at.paid for mark in marks)
    log_axis(axes, "y", lowest, highest)
    # What is free stands at the edge
    marks = [replace(mark, at=mark.at._replace(paid=max(mark.at.paid, lowest))) for mark in marks]
    for kind, (name, style) in _KINDS.items():
        if places := [mark.at for mark in marks if mark.kind == kind]:
            axes.scatter(*zip(*places, strict=True), label=name or other_name, **style)
    axes.legend(loc="upper left")
    if best := [mark for mark in marks if mark.kind == "best"]:
        # At every throughput the least cost, from the fastest, which the upper edge ends
        speeds, costs = zip(*(mark.at for mark in best), strict=True)
        least = [highest, *accumulate(costs, min)]
        speeds, slowest = (speeds[0], *speeds), axes.get_xlim()[0]
        axes.step((*speeds, slowest), (*least, least[-1]), where="post", color=COLOURS[0])
        _name(axes, best)


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Of a logarithmic axis."""
    paid = [value for value in values if value > 0] or [1.0]
    return min(paid) / 1.15, max(paid) * 1.15


def _name(axes: "Axes", best: Sequence[Mark]) -> None:
    """Names points of the front, where there is room."""
    taken = list[Any]()
    for mark in best:
        text = axes.annotate(mark.name, mark.at, (6, -10), textcoords="offset points", fontsize=8)
        box = text.get_window_extent()
        if any(map(box.overlaps, taken)):
            text.remove()
        else:
            taken.append(box)


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
        at = figures_of(document, terms, time_ns / NANOSECONDS_PER_SECOND)
        if document.aim == "subsets":
            at = at._replace(paid=sum(cluster.nodes))
        name = cluster_name(document, cluster.nodes, terms.on_spot)
        yield Mark("best" if terms.on_spot in best else kind, at, name)


def front_page(document: FrontDocument) -> str:
    """Picture, points, and where all other clusters stand: one HTML file that is whole."""
    instance = document.family.instance
    lowest = "fewest nodes" if document.aim == "subsets" else "least cost"
    note = (
        f"The line is the {lowest} at a throughput. Dominated clusters are faint; hollow ones "
        "stand where plans of theirs can be at best."
    )
    lines = Labelled(subset_lines(document), cost_lines(document), search_lines(document))
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
        section("Front", inline(front_picture(document), "clusters and their front"), note),
        section("Points", point_table(document)),
        section("Proof", lines),
        section("Other clusters", others),
    ]
    return sections_page(f"{instance.name}: {instance.workload.name}", parts)
