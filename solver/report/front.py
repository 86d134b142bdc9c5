"""A front in words and tables, as FASOP prints its own: clusters, or subsets of nodes that help."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from formulations.costs.renting import Terms, chooses_terms
from solver.document import PlanDocument
from solver.front_document import FrontDocument, PointDocument, TermsDocument
from solver.report.assumptions import flash_lines, preemption_text
from solver.report.layout import Grid, Labelled, Lines, Parts, table_of
from solver.report.naming import DEGREES, WORDS, degrees_line, degrees_of
from solver.report.quantities import money, percent, ranges, significant, time_text
from solver.report.text import lengths_lines

#: Open clusters that are named.
FEW = 5


class Figures(NamedTuple):
    """Sequences per second of steps that are kept, and what is paid for them.

    paid: USD of the training, or of a million of them; in pictures of subsets nodes.
    """

    throughput: float
    paid: float


def sequences_name(document: FrontDocument) -> str:
    """What throughputs are of."""
    return "useful sequences" if chooses_terms(document.family.instance) else "sequences"


def cost_name(document: FrontDocument) -> str:
    """What costs are of."""
    steps = document.family.instance.objective.steps
    batch = document.family.instance.workload.global_batch
    number = "a million" if steps is None else f"{steps * batch:,}"
    return f"{number} {sequences_name(document)}"


def figures_of(document: FrontDocument, terms: Terms, step_time_s: float) -> Figures:
    """Of a cluster on these terms whose steps take so long."""
    stated = TermsDocument.of(document.family.instance, terms, step_time_s)
    return Figures(stated.sequences_per_s, training_usd(document, stated.cost_usd_per_step))


def training_usd(document: FrontDocument, step_usd: float) -> float:
    """Cost of all steps whose sequences `cost_name` counts."""
    instance = document.family.instance
    steps = instance.objective.steps
    return step_usd * (1e6 / instance.workload.global_batch if steps is None else steps)


# Fronts of money


def least_text(document: FrontDocument) -> str:
    """The least cost or time there is, where a budget or a deadline is too tight; one line."""
    if not document.points:
        return "no cluster within the limits; what they would have to be was not found in time"
    point, steps = document.points[0], document.family.instance.objective.steps
    terms = point.terms[0]
    figure = f"cost is {money(training_usd(document, terms.cost_usd_per_step))}"
    if document.aim != "money":
        figure = f"time is {time_text(_step_s(point) / terms.availability * (steps or 1))}"
    per = "a step" if document.aim == "time" and steps is None else cost_name(document)
    proved = "not proved" if document.num_open else f"proved{within_gap(document)}"
    name = cluster_name(document, point.nodes, terms.on_spot)
    return f"no cluster within the limits: the least {figure} for {per}, by {name}, {proved}"


def cost_lines(document: FrontDocument) -> Lines:
    """What costs are of, and what preemptions are taken to be."""
    yield "cost", f"of {cost_name(document)}"
    preemption = document.family.instance.preemption
    if preemption is None or not chooses_terms(document.family.instance):
        return
    restart, checkpoint = time_text(preemption.restart_s), time_text(preemption.checkpoint_s)
    yield "useful", "sequences of steps that are kept; `kept`: their share of the time"
    yield (
        "assumed",
        f"a preemption of any node of a cluster costs {restart} and what came after the last "
        f"checkpoint, which takes {checkpoint}; {preemption_text(preemption)}",
    )


def within_gap(document: FrontDocument) -> str:
    """How sure it is that a cluster is dominated."""
    gap = document.requested_gap
    return f" within {percent(gap)}" if gap else ""


def cluster_name(document: FrontDocument, nodes: Sequence[int], on_spot: Sequence[str] = ()) -> str:
    """Nodes of a cluster by group, such as "2 a100, 5 a10 on spot"."""
    groups = document.family.instance.cluster.groups
    used = [(count, group.name) for count, group in zip(nodes, groups, strict=True) if count]
    names = [f"{count} {name}{' on spot' * (name in on_spot)}" for count, name in used]
    return ", ".join(names) or "none"


def degrees_text(plan: PlanDocument) -> str:
    """Tensor x data x pipeline, sequences per micro-batch."""
    return "" if plan.config is None else degrees_line(plan.config, degrees_of(plan))


def _gap_text(point: PointDocument) -> str:
    return "open" if point.plan.gap is None else percent(point.plan.gap)


def point_table(document: FrontDocument) -> Grid:
    """A row for every point on each of its terms, fastest first."""
    on_terms = ((point, terms) for point in document.points for terms in point.terms)
    longest_s = max(map(_step_s, document.points), default=0.0)
    return table_of(
        sorted(on_terms, key=lambda row: -row[1].sequences_per_s),
        {
            "cluster": lambda row: cluster_name(document, row[0].nodes, row[1].on_spot),
            DEGREES: lambda row: degrees_text(row[0].plan),
        },
        {
            "USD/h": lambda row: f"{row[1].price_usd_per_hour:,.2f}",
            "step": lambda row: time_text(_step_s(row[0]), longest_s),
            "kept": chooses_terms(document.family.instance)
            and (lambda row: percent(row[1].availability)),
            f"{sequences_name(document)}/s": lambda row: significant(row[1].sequences_per_s),
            "cost": lambda row: money(training_usd(document, row[1].cost_usd_per_step)),
            "gap": lambda row: _gap_text(row[0]),
        },
    )


def search_lines(document: FrontDocument) -> Lines:
    """Workload, how all clusters stand, and how the search went."""
    instance = document.family.instance
    workload, clusters = instance.workload, document.clusters
    batch, length = workload.global_batch, workload.sequence_length
    # How many clusters stand where
    count = Counter(cluster.standing for cluster in clusters)
    by_bounds = sum(c.standing == "dominated" and c.closed_by == "bounds" for c in clusters)
    standings = [f"{len(clusters):,}", f"{len(document.points):,} on the front"]
    if count["dominated"]:
        within = within_gap(document)
        standings.append(
            f"{count['dominated']:,} dominated{within}, {by_bounds:,} of them by bounds alone"
        )
    if count["infeasible"]:
        standings.append(f"{count['infeasible']:,} without a plan within the limits")
    if count["open"]:
        standings.append(f"{count['open']:,} open")
    yield "workload", f"{workload.name}: {batch:,} sequences of {length:,} tokens per step"
    yield from lengths_lines(instance)
    yield from flash_lines(instance)
    yield "clusters", "; ".join(standings)
    # Clusters whose place is not shown
    open_ = [cluster for cluster in clusters if cluster.standing == "open"]
    if open_:
        names = [f"({cluster_name(document, cluster.nodes)})" for cluster in open_[:FEW]]
        more = f" and {len(open_) - FEW:,} more" if len(open_) > FEW else ""
        yield "open", f"{', '.join(names)}{more} may still have better plans"
    for point in document.points:
        if point.nodes != point.nodes_used:
            used = cluster_name(document, point.nodes_used)
            yield "idle", f"{cluster_name(document, point.nodes)}: the plan uses {used}"
    ended = WORDS["termination"][document.termination].format("cluster")
    yield "search", f"{time_text(document.runtime_s)}, {ended}"


def front_report(document: FrontDocument) -> Parts:
    """The points, or the best of every size, then where all other clusters stand."""
    subsets = document.aim == "subsets"
    if document.points:
        yield _size_table(document) if subsets else point_table(document)
    lines = subset_lines(document) if subsets else cost_lines(document)
    yield Labelled(lines, search_lines(document))


# Subsets of the nodes of one cluster: the best of every number, what is lost without some


def subset_lines(document: FrontDocument) -> Lines:
    """Sizes that bring nothing, then groups, then idle nodes; none of fronts of another aim."""
    best = _fastest(document.points)
    if document.aim != "subsets" or best is None:
        return
    # Numbers of nodes that are not in the table, and why
    sizes = [*_best_of_sizes(document)]
    sure = "" if document.num_open else ", proved"
    others = {sum(cluster.nodes) for cluster in document.clusters} - {*sizes}
    few = [size for size in others if size < sizes[0]]
    many = [size for size in others if size > sizes[0]]
    reasons = [(few, "no plan"), (many, "no plan is faster than the best of fewer nodes")]
    for which, what in reasons:
        if which:
            yield "nodes", f"{ranges(which)}: {what}{sure}"
    # What is lost without a group, and with one node of it less
    for j, group in enumerate(document.family.instance.cluster.groups):
        less = _fastest(point for point in document.points if point.nodes[j] < group.nodes)
        none = _fastest(point for point in document.points if not point.nodes[j])
        yield f"without {group.name}", _longer(document, best, none)
        if group.nodes > 1:
            yield "one less", f"of {group.name}: {_longer(document, best, less)}"
    # Nodes that the fastest plan leaves idle
    for j, group in enumerate(document.family.instance.cluster.groups):
        if idle := group.nodes - best.nodes[j]:
            yield "idle", f"{idle} of {group.name}: {_no_more(document, best, j)}"


def _step_s(point: PointDocument) -> float:
    return point.plan.step_time_s or 0.0


def _fastest(points: Iterable[PointDocument]) -> PointDocument | None:
    return min(points, key=_step_s, default=None)


def _best_of_sizes(document: FrontDocument) -> dict[int, PointDocument]:
    """The fastest point of every number of nodes that brings something, fewest nodes first."""
    best = dict[int, PointDocument]()
    for point in sorted(document.points, key=lambda point: (sum(point.nodes), _step_s(point))):
        if not best or _step_s(point) < min(map(_step_s, best.values())):
            best[sum(point.nodes)] = point
    return best


def _size_table(document: FrontDocument) -> Grid:
    longest_s = max(map(_step_s, document.points))
    best = [*_best_of_sizes(document).values()]
    adds = [percent(_step_s(few) / _step_s(many) - 1) for few, many in pairwise(best)]
    return table_of(
        zip(best, ["", *adds], strict=True),
        {
            "best subset": lambda row: cluster_name(document, row[0].nodes),
            DEGREES: lambda row: degrees_text(row[0].plan),
        },
        {
            "nodes": lambda row: f"{sum(row[0].nodes)}",
            "step": lambda row: time_text(_step_s(row[0]), longest_s),
            "sequences/s": lambda row: significant(row[0].plan.throughput_sequences_per_s or 0.0),
            "faster by": lambda row: row[1],
            "gap": lambda row: _gap_text(row[0]),
        },
    )


def _longer(document: FrontDocument, best: PointDocument, slower: PointDocument | None) -> str:
    if slower is None:
        return "no plan"
    more = _step_s(slower) / _step_s(best) - 1
    if not more:
        return "no loss"
    step = time_text(_step_s(slower), _step_s(best))
    return f"a step takes {step}, {percent(more)} longer, on {cluster_name(document, slower.nodes)}"


def _no_more(document: FrontDocument, best: PointDocument, j: int) -> str:
    """Why the fastest plan has no more nodes of group j, and what is shown of plans that do."""
    nodes = tuple(count + (i == j) for i, count in enumerate(best.nodes))
    more = next((cluster for cluster in document.clusters if cluster.nodes == nodes), None)
    if more is None:
        return "a node more is beyond the limit on rent"
    if more.standing == "infeasible":
        return "no plan uses just one more: no degrees fill so many nodes, or none fit memory"
    if more.step_time_ns is not None:
        return f"with one more a step takes {time_text(more.step_time_ns / 1e9, _step_s(best))}"
    if more.standing == "open":
        return "whether one more helps is not proved"
    gap = document.requested_gap
    return f"no plan with one more is faster{f' by more than {percent(gap)}' * bool(gap)}, proved"
