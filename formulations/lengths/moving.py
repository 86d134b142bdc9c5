"""What a switch between two plans takes at most, if senders are spread: an estimate, no plan of it.

Every GPU receives all that it is to hold, whether or not it has a part of it: its node's network
link carries that of all its GPUs, its own link inside the node its own. Gradients are as many as
parameters.
"""

from itertools import product

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.lengths.problem import Switching
from formulations.plan import Plan
from formulations.units import ceil_ns


def estimated_switching(instance: Instance, plans: list[Plan]) -> Switching:
    """Times between all plans; none between two that place the layers alike."""
    workload = instance.workload
    held = [_held(instance, plan) for plan in plans]
    parameters, gradients = (
        [_receiving_ns(instance, plan, own, size) for plan, own in zip(plans, held, strict=True)]
        for size in (workload.parameter_bytes, workload.gradient_bytes)
    )
    places = [_places(plan) for plan in plans]
    alike = [[one == other for other in places] for one in places]
    return Switching(*(_matrix(alike, times) for times in (parameters, gradients)))


def _matrix(alike: list[list[bool]], times: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(0 if same else time for same, time in zip(row, times, strict=True)) for row in alike
    )


def _places(plan: Plan) -> object:
    """Where which layers lie, and in how many parts."""
    return [
        (stage.layers, stage.group, stage.degrees)
        for replica in plan.replicas
        for stage in replica.stages
    ]


def _held(instance: Instance, plan: Plan) -> dict[tuple[int, int], int]:
    """Parameters on every GPU, by node and number."""
    memory, groups = build_tables(instance, plan.shape).memory, instance.cluster.node_groups
    held: dict[tuple[int, int], int] = {}
    for replica in plan.replicas:
        for stage in replica.stages:
            own, layers = memory[groups[stage.group.node]], slice(*stage.layers)
            count = int(own.parameters[layers].sum() + own.experts[layers].sum())
            held |= dict.fromkeys(product([stage.group.node], stage.group.gpus), count)
    return held


def _receiving_ns(
    instance: Instance, plan: Plan, held: dict[tuple[int, int], int], size_bytes: int
) -> int:
    """The slowest link's time for what its GPUs receive."""
    cluster = instance.cluster
    several = len({node for node, _ in held}) > 1
    longest_s = 0.0
    for node, j in enumerate(cluster.node_groups):
        group = cluster.groups[j]
        counts = [count for (own, _), count in held.items() if own == node]
        if not counts:
            continue
        loads = [(max(counts), group.intra_node)]
        if several:
            loads.append((sum(counts), group.inter_node))
        longest_s = max(
            longest_s,
            *(
                count * size_bytes / link.bandwidth_bytes_per_s + link.latency_s
                for count, link in loads
            ),
        )
    return ceil_ns(longest_s)
