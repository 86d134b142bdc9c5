"""Links between zones, as far as one stage and the one before decide what they carry."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product

import numpy as np

from formulations.costs.collectives import ring_latency_s, ring_share
from formulations.costs.memory import layer_memory
from formulations.instance import Instance
from formulations.plan import Shape
from formulations.units import ceil_ns
from solver.verify.bounds import Prover
from solver.verify.volumes import collective_factors, num_slots, widest


def zone_legs(instance: Instance, groups: Iterable[int]) -> list[frozenset[str | None]]:
    """Pairs of zones that may follow each other on the ring between nodes of these groups: any."""
    visited = dict.fromkeys(instance.cluster.groups[j].zone for j in groups)
    return [frozenset(pair) for pair in combinations(visited, 2)]


def passing(instance: Instance, before: Sequence[int], after: Sequence[int]) -> list[int]:
    """[R] of lanes on these groups: how many go from zone to zone as each does; 0 if it stays."""
    zone = [group.zone for group in instance.cluster.groups]
    ways = [(zone[i], zone[j]) for i, j in zip(before, after, strict=True)]
    lanes = Counter(ways)
    return [lanes[one] if one[0] != one[1] else 0 for one in ways]


def zone_slots(instance: Instance, shape: Shape) -> Counter[str | None]:
    """Slots of the nodes used in every zone."""
    slots = Counter[str | None]()
    groups = zip(instance.cluster.groups, shape.nodes_used, strict=True)
    for j, (group, count) in enumerate(groups):
        slots[group.zone] += count * num_slots(instance, shape, j)
    return slots


def keeps_stages_apart(prover: Prover, shape: Shape, below_ns: int) -> bool:
    """Whether no stage of any plan with a step below this lies in two zones.

    Then all replicas go from zone to zone together. One replica is on one node; else it takes too
    long, see `spanning_ns`.
    """
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    if not zone_legs(prover.instance, used):
        return False
    return shape.dp == 1 or spanning_ns(prover, shape) >= below_ns


def spanning_ns(prover: Prover, shape: Shape) -> int:
    """No plan with some stage in two zones has a shorter step, if there are two.

    Proof. The last backward of the stage on a replica comes after a forward of the whole chain by
    one micro-batch, each layer on some group used, whatever the schedule. Then follow its gradient
    sync and gather, one after the other. The stage has a layer, and N nodes, from 2 to min(dp, all
    nodes): its tp rings at least share a link between two zones used, so no collective has less
    time per byte than tp rings on that link, the widest, nor a shorter start than the latency of N
    on it. Of several layers each adds its own time; the least over layers, N and links is no more
    than any.
    """
    instance, tp = prover.instance, shape.widest_tp
    used = [j for j, n in enumerate(shape.nodes_used) if n]
    forward, _, _ = prover.stage_times(shape)
    onward = np.diff(forward[used, 0], axis=1).min(axis=0).sum()
    parameters = layer_memory(instance, shape)[widest(shape)].parameters
    sizes = (instance.workload.gradient_bytes, instance.workload.parameter_bytes)
    phases = list(zip(collective_factors(instance, shape), sizes, strict=True))
    least = []
    most, links = min(shape.dp, sum(shape.nodes_used)), instance.cluster.links_among(used)
    for nodes, link in product(range(2, most + 1), links):
        after = 0
        for factor, size in phases:
            s_per_byte = tp * ring_share(factor, nodes) / link.bandwidth_bytes_per_s
            smallest = size * int(parameters.min())
            after += ceil_ns(smallest * (s_per_byte / instance.cluster.efficiency(nodes)))
            after += ceil_ns(ring_latency_s(factor, nodes, link.latency_s))
        least.append(after)
    return int(onward) + min(least)
