"""Which machines of a cluster help: the best of every number, and what is lost without some."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType

from solver.front_document import FrontDocument, PointDocument
from solver.report.front_text import (
    DEGREES,
    cluster_name,
    degrees_text,
    front_text,
    search_lines,
)
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.quantities import percent, ranges, significant, time_text


def front_report(document: FrontDocument) -> list[RenderableType]:
    """A front as its aim asks for it."""
    return subsets_text(document) if document.aim == "subsets" else front_text(document)


def subsets_text(document: FrontDocument) -> list[RenderableType]:
    """The table of sizes, then groups, then idle nodes."""
    if not document.points:
        return [labelled(search_lines(document))]
    lines = [*subset_lines(document), *search_lines(document)]
    return [_size_table(document), "", labelled(lines)]


def subset_lines(document: FrontDocument) -> Lines:
    """Sizes that bring nothing, then groups, then idle nodes; none of fronts of another aim."""
    if document.aim != "subsets" or not document.points:
        return []
    return [*_other_sizes(document), *_without(document), *_idle(document)]


def _step_s(point: PointDocument) -> float:
    return point.plan.step_time_s or 0.0


def _fastest(points: Iterable[PointDocument]) -> PointDocument | None:
    return min(points, key=_step_s, default=None)


def _best_of_sizes(document: FrontDocument) -> dict[int, PointDocument]:
    """The fastest point of every number of nodes that brings something, fewest nodes first."""
    best = dict[int, PointDocument]()
    for point in sorted(document.points, key=lambda one: (sum(one.nodes), _step_s(one))):
        if not best or _step_s(point) < min(map(_step_s, best.values())):
            best[sum(point.nodes)] = point
    return best


def _other_sizes(document: FrontDocument) -> Lines:
    """Numbers of nodes that are not in the table, and why."""
    sizes = [*_best_of_sizes(document)]
    sure = "" if document.num_open else ", proved"
    others = sorted({sum(one.nodes) for one in document.clusters} - {*sizes})
    few = [size for size in others if size < sizes[0]]
    many = [size for size in others if size > sizes[0]]
    lines = [(few, "no plan"), (many, "no plan is faster than the best of fewer nodes")]
    return [("nodes", f"{ranges(which)}: {what}{sure}") for which, what in lines if which]


def _size_table(document: FrontDocument) -> Grid:
    """The best of every number of nodes that brings something."""
    longest = max(map(_step_s, document.points))
    rows, before = [], None
    for size, found in _best_of_sizes(document).items():
        speed = found.plan.throughput_sequences_per_s or 0.0
        adds = "" if before is None else percent(_step_s(before) / _step_s(found) - 1)
        rows.append(
            [
                cluster_name(document, found.nodes),
                degrees_text(found.plan),
                f"{size}",
                time_text(_step_s(found), longest),
                significant(speed),
                adds,
                "open" if found.plan.gap is None else percent(found.plan.gap),
            ]
        )
        before = found
    numbers = ["nodes", "step", "sequences/s", "faster by", "gap"]
    return table(["best subset", DEGREES], numbers, rows)


def _without(document: FrontDocument) -> Lines:
    """What is lost without a group, and with one node of it less."""
    best = _fastest(document.points)
    lines: Lines = []
    if best is None:
        return lines
    for j, group in enumerate(document.family.instance.cluster.groups):
        less = _fastest(one for one in document.points if one.nodes[j] < document.family.most[j])
        none = _fastest(one for one in document.points if not one.nodes[j])
        lines.append((f"without {group.name}", _longer(document, best, none)))
        if group.nodes > 1:
            lines.append(("one less", f"of {group.name}: {_longer(document, best, less)}"))
    return lines


def _longer(document: FrontDocument, best: PointDocument, other: PointDocument | None) -> str:
    if other is None:
        return "no plan"
    more = _step_s(other) / _step_s(best) - 1
    if not more:
        return "no loss"
    step = time_text(_step_s(other), _step_s(best))
    return f"a step takes {step}, {percent(more)} longer, on {cluster_name(document, other.nodes)}"


def _idle(document: FrontDocument) -> Iterator[tuple[str, str]]:
    """Nodes that the fastest plan leaves idle, and what is shown of plans that use more."""
    best = _fastest(document.points)
    if best is None:
        return
    standing = {one.nodes: one for one in document.clusters}
    for j, group in enumerate(document.family.instance.cluster.groups):
        idle = document.family.most[j] - best.nodes[j]
        if not idle:
            continue
        nodes = [*best.nodes]
        nodes[j] += 1
        more = standing.get(tuple(nodes))
        if more is None:
            why = "a node more is beyond the limit on rent"
        elif more.standing == "infeasible":
            why = "no plan uses just one more: no degrees fill so many nodes, or none fit memory"
        elif more.step_time_ns is not None:
            why = f"with one more a step takes {time_text(more.step_time_ns / 1e9, _step_s(best))}"
        elif more.standing == "open":
            why = "whether one more helps is not proved"
        else:
            gap = document.requested_gap
            beyond = f" by more than {percent(gap)}" if gap else ""
            why = f"no plan with one more is faster{beyond}, proved"
        yield "idle", f"{idle} of {group.name}: {why}"
