"""A front in words and a table, as FASOP prints its own. Returns what Rich can render."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType

from formulations.costs.renting import chooses_terms
from solver.document import PlanDocument
from solver.front_document import FrontDocument
from solver.report.assumptions import flash_lines
from solver.report.degrees import degrees_of, tensor_text
from solver.report.front_figures import cost_name, rows_of, speed_name, training_usd
from solver.report.layout import Lines, labelled, table
from solver.report.quantities import money, percent, significant, time_text
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


def front_text(document: FrontDocument) -> list[RenderableType]:
    """The points, then where all other clusters stand."""
    parts: list[RenderableType] = []
    if document.points:
        parts += [table(*point_rows(document)), ""]
    return [*parts, labelled([*cost_lines(document), *search_lines(document)])]


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
    return f"{tensor_text(degrees_of(plan))} x {shape.dp} x {shape.pp}, {shape.micro_batch}"


def point_rows(document: FrontDocument) -> tuple[list[str], list[str], list[list[str]]]:
    """Headings of texts and of numbers, and a row for every point on each of its terms."""
    chooses = chooses_terms(document.family.instance)
    longest = max((one.plan.step_time_s or 0.0 for one in document.points), default=0.0)
    rows = [
        [
            cluster_name(document, one.nodes, terms.on_spot),
            degrees_text(one.plan),
            f"{terms.price_usd_per_hour:,.2f}",
            time_text(one.plan.step_time_s or 0.0, longest),
            *([percent(terms.availability)] if chooses else []),
            significant(terms.sequences_per_s),
            money(training_usd(document, terms.cost_usd_per_step)),
            "open" if one.plan.gap is None else percent(one.plan.gap),
        ]
        for one, terms in rows_of(document)
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


def _open(document: FrontDocument) -> str:
    """Clusters whose place is not shown."""
    open_ = [one for one in document.clusters if one.standing == "open"]
    names = [f"({cluster_name(document, one.nodes)})" for one in open_[:FEW]]
    more = f" and {len(open_) - FEW:,} more" if len(open_) > FEW else ""
    return f"{', '.join(names)}{more} may still have better plans"
