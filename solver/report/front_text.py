"""A front in words and a table, as FASOP prints its own. Returns what Rich can render."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType

from solver.document import PlanDocument
from solver.front_document import FrontDocument
from solver.report.degrees import degrees_of, tensor_text
from solver.report.front_figures import cost_name, figures_of
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.quantities import money, percent, significant, time_text

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


def front_text(document: FrontDocument) -> list[RenderableType]:
    """The points, then where all other clusters stand."""
    parts: list[RenderableType] = []
    if document.points:
        parts += [_point_table(document), ""]
    cost = [("cost", f"of {cost_name(document)}")]
    return [*parts, labelled([*cost, *search_lines(document)])]


def cluster_name(document: FrontDocument, nodes: Sequence[int]) -> str:
    """Nodes of a cluster by group, such as "2 a100, 5 a10"."""
    groups = document.family.instance.cluster.groups
    used = zip(nodes, groups, strict=True)
    return ", ".join(f"{count} {group.name}" for count, group in used if count) or "none"


def degrees_text(plan: PlanDocument) -> str:
    """Tensor x data x pipeline, sequences per micro-batch."""
    shape = plan.shape
    if shape is None:
        return ""
    return f"{tensor_text(degrees_of(plan))} x {shape.dp} x {shape.pp}, {shape.micro_batch}"


def _point_table(document: FrontDocument) -> Grid:
    rows = []
    longest = max(one.plan.step_time_s or 0.0 for one in document.points)
    for one in document.points:
        step_s = one.plan.step_time_s or 0.0
        rows.append(
            [
                cluster_name(document, one.nodes),
                degrees_text(one.plan),
                f"{one.price_usd_per_hour:,.2f}",
                time_text(step_s, longest),
                significant(one.plan.throughput_sequences_per_s or 0.0),
                money(figures_of(document, one.nodes, step_s).cost_usd),
                "open" if one.plan.gap is None else percent(one.plan.gap),
            ]
        )
    numbers = ["USD/h", "step", "sequences/s", "cost", "gap"]
    return table(["cluster", DEGREES], numbers, rows)


def search_lines(document: FrontDocument) -> Lines:
    """Workload, how all clusters stand, and how the search went."""
    workload = document.family.instance.workload
    batch, length = workload.global_batch, workload.sequence_length
    lines = [("workload", f"{workload.name}: {batch:,} sequences of {length:,} tokens per step")]
    lines.append(("clusters", _standings(document)))
    if document.num_open:
        lines.append(("open", _open(document)))
    for one in document.points:
        if one.nodes != one.nodes_used:
            used = cluster_name(document, one.nodes_used)
            lines.append(("idle", f"{cluster_name(document, one.nodes)}: the plan uses {used}"))
    searched, ended = time_text(document.runtime_s), _TERMINATION[document.termination]
    return [*lines, ("search", f"{searched}, {ended}")]


def _standings(document: FrontDocument) -> str:
    count = Counter((one.standing, one.closed_by) for one in document.clusters)
    by = Counter(one.standing for one in document.clusters)
    gap = percent(document.requested_gap)
    parts = [f"{len(document.clusters):,}", f"{len(document.points):,} on the front"]
    if by["dominated"]:
        alone = count["dominated", "bounds"]
        within = f" within {gap}" if document.requested_gap else ""
        parts.append(f"{by['dominated']:,} dominated{within}, {alone:,} of them by bounds alone")
    if by["infeasible"]:
        parts.append(f"{by['infeasible']:,} without a plan within the limits")
    if by["open"]:
        parts.append(f"{by['open']:,} open")
    return "; ".join(parts)


def _open(document: FrontDocument) -> str:
    """Clusters whose place is not shown."""
    open_ = [one for one in document.clusters if one.standing == "open"]
    names = [f"({cluster_name(document, one.nodes)})" for one in open_[:FEW]]
    more = f" and {len(open_) - FEW:,} more" if len(open_) > FEW else ""
    return f"{', '.join(names)}{more} may still have better plans"
