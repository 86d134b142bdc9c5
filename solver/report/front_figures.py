"""Throughput and cost of clusters, as tables and pictures of fronts show them."""

from collections.abc import Sequence
from typing import NamedTuple

from solver.front_document import FrontDocument
from solver.result import rent_usd_per_hour


class Figures(NamedTuple):
    """Sequences per second; USD of the training, or of a million sequences."""

    throughput: float
    cost_usd: float


def cost_name(document: FrontDocument) -> str:
    """What costs are of."""
    steps = document.family.instance.objective.steps
    batch = document.family.instance.workload.global_batch
    return "a million sequences" if steps is None else f"{steps * batch:,} sequences"


def figures_of(document: FrontDocument, nodes: Sequence[int], step_time_s: float) -> Figures:
    """Of a cluster whose steps take so long."""
    instance = document.family.instance
    batch, steps = instance.workload.global_batch, instance.objective.steps
    cost_usd = rent_usd_per_hour(instance, nodes) * step_time_s / 3600
    count = 1e6 / batch if steps is None else steps
    return Figures(batch / step_time_s, cost_usd * count)
