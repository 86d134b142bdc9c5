"""What a plan costs with preemptions: the terms of its nodes, and what is assumed of them."""

from formulations.costs.availability import in_whole_steps
from formulations.instance import NodeGroup
from formulations.instance.preemption import Preemption
from formulations.units import SECONDS_PER_HOUR
from solver.document import PlanDocument, RentingDocument
from solver.report.layout import Lines
from solver.report.quantities import counted, money, percent, significant, time_text

#: Smaller shares of time are not worth a word.
_LEAST = 1e-4


def renting_lines(document: PlanDocument) -> Lines:
    """Terms, useful throughput, money per useful sequence; empty for other objectives."""
    renting, preemption = document.renting, document.instance.preemption
    step_s, shape = document.step_time_s, document.shape
    if renting is None or preemption is None or step_s is None or shape is None:
        return []
    used = zip(document.instance.cluster.groups, shape.nodes_used, strict=True)
    terms = [_terms(group, count, renting) for group, count in used if count]
    kept, speed = renting.availability, significant(renting.useful_sequences_per_s)
    why = f", as {percent(kept)} of the time goes into steps that are kept" if kept < 1 else ""
    return [
        *(("" if i else "rented", text) for i, text in enumerate(terms)),
        (
            "useful",
            f"{speed} sequences/s{why}; {money(renting.cost_usd_per_useful_sequence)} per sequence",
        ),
        *_checkpoints(preemption, renting, step_s),
    ]


def _terms(group: NodeGroup, count: int, renting: RentingDocument) -> str:
    """Price of a node, and how often it is taken back."""
    nodes, spot = f"{counted(count, 'node')} of {group.name}", group.spot
    if spot is None or group.name not in renting.on_spot:
        return f"{nodes} on demand, {money(group.price_usd_per_hour)} per node-hour"
    often = f"{spot.preemptions_per_hour:.4g} preemptions per node-hour"
    price = f"{money(spot.price_usd_per_hour)} per node-hour"
    return f"{nodes} on spot, {price}, {often} ({spot.kind}, {spot.source})"


def _checkpoints(preemption: Preemption, renting: RentingDocument, step_s: float) -> Lines:
    """When checkpoints are due, and what the figures take for granted."""
    every_s, rate = renting.checkpoint_every_s, renting.preemptions_per_hour
    if every_s is None:
        return [("assumed", "nodes on demand are never lost")]
    rate_per_s = rate / SECONDS_PER_HOUR
    steps, slowdown = in_whole_steps(preemption, rate_per_s, step_s)
    more = slowdown * renting.availability - 1
    whole = f"; whole steps take {percent(more)} more time" if more > _LEAST else ""
    checkpoint, restart = time_text(preemption.checkpoint_s), time_text(preemption.restart_s)
    return [
        (
            "checkpoints",
            f"{checkpoint} after {time_text(every_s)} of training, {counted(steps, 'step')}{whole}",
        ),
        (
            "assumed",
            f"preemptions: {rate:.4g} per hour, one node each at its own time; what came "
            f"after the last checkpoint is lost, and {restart} until another node is in its place; "
            f"all nodes are paid for all the time; nodes on demand are never lost ("
            f"{preemption.kind}, {preemption.source})",
        ),
    ]
