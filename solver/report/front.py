"""A front in words and tables, as FASOP prints its own: clusters, or subsets of nodes that help."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import RenderableType

from formulations.costs.renting import Terms, chooses_terms, worthwhile_terms
from formulations.units import SECONDS_PER_HOUR
from solver.document import PlanDocument
from solver.front_document import FrontDocument, PointDocument
from solver.report.assumptions import flash_lines
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.naming import degrees_line, degrees_of
from solver.report.quantities import money, percent, ranges, significant, time_text
from solver.report.text import lengths_lines

_TERMINATION = {
    "closed": "every cluster is closed",
    "time_limit": "the time limit was reached",
    "interrupted": "interrupted",
    "unfinished": "some clusters could not be closed",
}
#: Heading of `degrees_text`.
DEGREES = "tensor x data x pipeline, micro-batch"
#: Open clusters that are named.
FEW = 5


class Figures(NamedTuple):
    """Sequences per second of steps that are kept, and what is paid for them.

    paid: USD of the training, or of a million of them; in pictures of subsets nodes.
    """

    throughput: float
    paid: float


def speed_name(document: FrontDocument) -> str:
    """What throughputs are of."""
    return f"{_useful(document)}sequences/s"


def cost_name(document: FrontDocument) -> str:
    """What costs are of."""
    steps, useful = document.family.instance.objective.steps, _useful(document)
    batch = document.family.instance.workload.global_batch
    number = "a million" if steps is None else f"{steps * batch:,}"
    return f"{number} {useful}sequences"


def _useful(document: FrontDocument) -> str:
    return "useful " if chooses_terms(document.family.instance) else ""


def terms_of_cluster(document: FrontDocument, nodes: Sequence[int]) -> tuple[Terms, ...]:
    """On which the nodes of a cluster may be rented, fastest first."""
    return worthwhile_terms(document.family.instance, nodes)


def figures_of(document: FrontDocument, terms: Terms, step_time_s: float) -> Figures:
    """Of a cluster on these terms whose steps take so long."""
    instance, kept_s = document.family.instance, step_time_s * terms.slowdown
    batch = instance.workload.global_batch
    step_usd = terms.usd_per_hour * kept_s / SECONDS_PER_HOUR
    return Figures(batch / kept_s, training_usd(document, step_usd))


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
    kept_s = (point.plan.step_time_s or 0.0) / terms.availability
    cost = f"cost is {money(training_usd(document, terms.cost_usd_per_step))}"
    time = f"time is {time_text(kept_s * (steps or 1))}"
    least = cost if document.aim == "money" else time
    per = "a step" if document.aim == "time" and steps is None else cost_name(document)
    open_ = ", not proved" if document.num_open else f", proved{within_gap(document)}"
    name = cluster_name(document, point.nodes, terms.on_spot)
    return f"no cluster within the limits: the least {least} for {per}, by {name}{open_}"


def cost_lines(document: FrontDocument) -> Lines:
    """What costs are of, and what preemptions are taken to be."""
    lines = [("cost", f"of {cost_name(document)}")]
    preemption = document.family.instance.preemption
    if preemption is None or not chooses_terms(document.family.instance):
        return lines
    restart, checkpoint = time_text(preemption.restart_s), time_text(preemption.checkpoint_s)
    lines.append(("useful", "sequences of steps that are kept; `kept`: their share of the time"))
    assumed = (
        f"a preemption of any node of a cluster costs {restart} and what came after the last "
        f"checkpoint, which takes {checkpoint}; all nodes are paid for all the time; nodes on "
        f"demand are never lost ({preemption.kind}, {preemption.source})"
    )
    return [*lines, ("assumed", assumed)]


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
    shape = plan.shape
    if shape is None:
        return ""
    return degrees_line(shape, degrees_of(plan))


def point_rows(document: FrontDocument) -> tuple[list[str], list[str], list[list[str]]]:
    """Headings of texts and of numbers, and a row for every point on each of its terms."""
    chooses = chooses_terms(document.family.instance)
    on_terms = ((point, terms) for point in document.points for terms in point.terms)
    pairs = sorted(on_terms, key=lambda pair: -pair[1].sequences_per_s)
    longest_s = max(map(_step_s, document.points), default=0.0)
    rows = [
        [
            cluster_name(document, point.nodes, terms.on_spot),
            degrees_text(point.plan),
            f"{terms.price_usd_per_hour:,.2f}",
            time_text(_step_s(point), longest_s),
            *([percent(terms.availability)] if chooses else []),
            significant(terms.sequences_per_s),
            money(training_usd(document, terms.cost_usd_per_step)),
            "open" if point.plan.gap is None else percent(point.plan.gap),
        ]
        for point, terms in pairs
    ]
    kept = ["kept"] if chooses else []
    numbers = ["USD/h", "step", *kept, speed_name(document), "cost", "gap"]
    return ["cluster", DEGREES], numbers, rows


def search_lines(document: FrontDocument) -> Lines:
    """Workload, how all clusters stand, and how the search went."""
    workload = document.family.instance.workload
    batch, length = workload.global_batch, workload.sequence_length
    lines = [("workload", f"{workload.name}: {batch:,} sequences of {length:,} tokens per step")]
    lines += lengths_lines(document.family.instance)
    lines += flash_lines(document.family.instance)
    lines.append(("clusters", _standings(document)))
    if document.num_open:  # clusters whose place is not shown
        open_ = [cluster for cluster in document.clusters if cluster.standing == "open"]
        names = [f"({cluster_name(document, cluster.nodes)})" for cluster in open_[:FEW]]
        more = f" and {len(open_) - FEW:,} more" if len(open_) > FEW else ""
        lines.append(("open", f"{', '.join(names)}{more} may still have better plans"))
    for point in document.points:
        if point.nodes != point.nodes_used:
            used = cluster_name(document, point.nodes_used)
            lines.append(("idle", f"{cluster_name(document, point.nodes)}: the plan uses {used}"))
    searched, ended = time_text(document.runtime_s), _TERMINATION[document.termination]
    return [*lines, ("search", f"{searched}, {ended}")]


def _standings(document: FrontDocument) -> str:
    count = Counter((cluster.standing, cluster.closed_by) for cluster in document.clusters)
    by = Counter(cluster.standing for cluster in document.clusters)
    parts = [f"{len(document.clusters):,}", f"{len(document.points):,} on the front"]
    if by["dominated"]:
        alone = count["dominated", "bounds"]
        within = within_gap(document)
        parts.append(f"{by['dominated']:,} dominated{within}, {alone:,} of them by bounds alone")
    if by["infeasible"]:
        parts.append(f"{by['infeasible']:,} without a plan within the limits")
    if by["open"]:
        parts.append(f"{by['open']:,} open")
    return "; ".join(parts)


def front_report(document: FrontDocument) -> list[RenderableType]:
    """The points, or the best of every size, then where all other clusters stand."""
    search = search_lines(document)
    if document.aim != "subsets":
        lines = labelled([*cost_lines(document), *search])
        return [table(*point_rows(document)), "", lines] if document.points else [lines]
    if not document.points:
        return [labelled(search)]
    return [_size_table(document), "", labelled([*subset_lines(document), *search])]


# Subsets of the nodes of one cluster: the best of every number, what is lost without some


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
    for point in sorted(document.points, key=lambda point: (sum(point.nodes), _step_s(point))):
        if not best or _step_s(point) < min(map(_step_s, best.values())):
            best[sum(point.nodes)] = point
    return best


def _other_sizes(document: FrontDocument) -> Lines:
    """Numbers of nodes that are not in the table, and why."""
    sizes = [*_best_of_sizes(document)]
    sure = "" if document.num_open else ", proved"
    others = sorted({sum(cluster.nodes) for cluster in document.clusters} - {*sizes})
    few = [size for size in others if size < sizes[0]]
    many = [size for size in others if size > sizes[0]]
    lines = [(few, "no plan"), (many, "no plan is faster than the best of fewer nodes")]
    return [("nodes", f"{ranges(which)}: {what}{sure}") for which, what in lines if which]


def _size_table(document: FrontDocument) -> Grid:
    """The best of every number of nodes that brings something."""
    longest_s = max(map(_step_s, document.points))
    rows, before = [], None
    for size, point in _best_of_sizes(document).items():
        adds = "" if before is None else percent(_step_s(before) / _step_s(point) - 1)
        rows.append(
            [
                cluster_name(document, point.nodes),
                degrees_text(point.plan),
                f"{size}",
                time_text(_step_s(point), longest_s),
                significant(point.plan.throughput_sequences_per_s or 0.0),
                adds,
                "open" if point.plan.gap is None else percent(point.plan.gap),
            ]
        )
        before = point
    numbers = ["nodes", "step", "sequences/s", "faster by", "gap"]
    return table(["best subset", DEGREES], numbers, rows)


def _without(document: FrontDocument) -> Lines:
    """What is lost without a group, and with one node of it less."""
    best = _fastest(document.points)
    lines: Lines = []
    if best is None:
        return lines
    for j, group in enumerate(document.family.instance.cluster.groups):
        fewer = (point for point in document.points if point.nodes[j] < document.family.most[j])
        less = _fastest(fewer)
        none = _fastest(point for point in document.points if not point.nodes[j])
        lines.append((f"without {group.name}", _longer(document, best, none)))
        if group.nodes > 1:
            lines.append(("one less", f"of {group.name}: {_longer(document, best, less)}"))
    return lines


def _longer(document: FrontDocument, best: PointDocument, slower: PointDocument | None) -> str:
    if slower is None:
        return "no plan"
    more = _step_s(slower) / _step_s(best) - 1
    if not more:
        return "no loss"
    step = time_text(_step_s(slower), _step_s(best))
    return f"a step takes {step}, {percent(more)} longer, on {cluster_name(document, slower.nodes)}"


def _idle(document: FrontDocument) -> Iterator[tuple[str, str]]:
    """Nodes that the fastest plan leaves idle, and what is shown of plans that use more."""
    best = _fastest(document.points)
    if best is None:
        return
    standing = {cluster.nodes: cluster for cluster in document.clusters}
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
