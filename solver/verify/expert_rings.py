"""Experts that `ep` GPUs share, worked out again: the rings that sum their gradients.

The cost model has these rings last as long wherever a stage lies, see
`formulations.costs.sharding`: the most of any node group used, inside nodes and between them,
with as many members, nodes and rings as any placement may bring.
"""

from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Shape
from solver.verify.link_times import ceil_all_ns
from solver.verify.volumes import num_copies, num_lanes, num_slots

Array = NDArray[np.int64]


def rings_of_experts_ns(
    instance: Instance, shape: Shape, factor: float, sizes_bytes: Array
) -> Array:
    """[n] ring collective of the experts of each layer; sizes_bytes: [n, J] per GPU."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    copies = max(num_copies(shape, j) for j in used)
    if copies == 1 or factor == 0 or (shape.ep == 1 and shape.etp is None):
        return np.zeros(len(sizes_bytes), dtype=np.int64)
    groups, degrees = instance.cluster.groups, shape.degrees
    sizes_of = {j: degrees[j].tp * degrees[j].parts * degrees[j].cp for j in used}
    ranks = {j: num_slots(instance, shape, j) * sizes_of[j] // num_lanes(shape, j) for j in used}
    stage = copies * shape.ep
    sizes = set(ranks.values())
    whole = len(sizes) == 1 and 0 in (stage % min(sizes), min(sizes) % stage)
    if whole:
        nodes = ceil(stage / min(sizes))
    else:
        nodes = min(sum(shape.nodes_used), 2 + (stage - 1) // min(sizes))
    nodes = min(nodes, copies)
    between = factor * (nodes - 1) / nodes / instance.cluster.efficiency(nodes)
    shared = gcd(shape.ep, *sizes)
    inside, outside = np.zeros_like(sizes_bytes[:, 0]), np.zeros_like(sizes_bytes[:, 0])
    starts, delays = [0.0], [0.0]
    for j in used:
        members = min(copies, ranks[j] // shared)
        near, far = groups[j].intra_node, groups[j].inter_node
        seconds = sizes_bytes[:, j] * (
            factor * (members - 1) / members / near.bandwidth_bytes_per_s
        )
        inside = np.maximum(inside, ceil_all_ns(seconds))
        starts.append(factor * (members - 1) * near.latency_s)
        lanes = num_lanes(shape, j) * min(shape.ep, ranks[j]) * (1 if whole else 2)
        seconds = sizes_bytes[:, j] * (between * lanes / far.bandwidth_bytes_per_s)
        outside = np.maximum(outside, ceil_all_ns(seconds))
        delays.append(factor * (nodes - 1) * far.latency_s)
    for link in instance.cluster.links_among(used):
        j = max(used, key=lambda j: (degrees[j].tp, -j))
        lanes = num_lanes(shape, j) * shape.ep * shape.pp
        seconds = sizes_bytes[:, j] * (between * lanes / link.bandwidth_bytes_per_s)
        outside = np.maximum(outside, ceil_all_ns(seconds))
        delays.append(factor * (nodes - 1) * link.latency_s)
    start = ceil_all_ns(max(starts)) + ceil_all_ns(max(delays))
    held = sizes_bytes[:, used].max(axis=1) > 0
    found: Array = np.where(held, inside + outside + start, 0)
    return found
