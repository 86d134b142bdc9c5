"""What the gradients and parameters of experts that ep GPUs share take between replicas.

The same experts are on every ep-th of the S = tp dp cp / etp ranks of a stage: R = S / ep in one
ring for each of the ep sets of experts and of the etp lanes. With q_j ranks on a node of group j,
of which `together` of a group share a node, w = min(R, q_j / together) of a ring lie on a node at
most, and a ring visits at most N = min(R, nodes that a stage may lie on). So, over the node groups
used,
    inside    max_j (w - 1) / w * bytes / link inside the node
    between   max_j etp min(ep, q_j) stages (N - 1) / N * bytes / (link between nodes efficiency(N))
and once more for each link between zones used, which the rings of all stages share. `stages`: those
of a node whose rings leave it, 2 at most. Where all nodes used have equally many ranks q, and one
of q and S divides the other, a stage lies on S / q nodes, or with others on one; else it may
straddle nodes at both ends.

Every placement costs this same time, layer by layer with a start each: on equal nodes exactly,
on unlike ones that of the slowest.
"""

from collections.abc import Iterator

import numpy as np

from formulations.costs.collectives import ring_latency_s, ring_share, wire_ns
from formulations.costs.compute import Times
from formulations.costs.experts import members_of, ranks_per_node
from formulations.instance import Instance, Link
from formulations.plan import Shape
from formulations.units import ceil_ns


def expert_rings_ns(instance: Instance, shape: Shape, factor: float, size_bytes: Times) -> Times:
    """[L] rings over the ranks with the same experts; size_bytes: [L, J] of a GPU's experts."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    ring = max(shape.expert_ranks(j) for j in used)
    if ring == 1 or not factor:
        return np.zeros(len(size_bytes), dtype=np.int64)
    together, cluster = members_of(instance, shape).together, instance.cluster
    inside, inside_s = [np.zeros(len(size_bytes), dtype=np.int64)], 0.0
    for j in used:
        link = cluster.groups[j].intra_node
        own = min(ring, ranks_per_node(instance, shape, j) // together)
        rate = ring_share(factor, own) / link.bandwidth_bytes_per_s
        inside.append(wire_ns(size_bytes[:, j], rate))
        inside_s = max(inside_s, ring_latency_s(factor, own, link.latency_s))
    nodes = min(ring, _most_nodes(instance, shape, used))
    share = ring_share(factor, nodes) / cluster.efficiency(nodes)
    links = list(_links(instance, shape, used))
    outside = [
        wire_ns(size_bytes[:, j], share * n / link.bandwidth_bytes_per_s) for j, link, n in links
    ]
    between_s = ring_latency_s(factor, nodes, max(link.latency_s for _, link, _ in links))
    layers = np.max(inside, axis=0) + np.max(outside, axis=0)
    whole: Times = layers + ceil_ns(inside_s) + ceil_ns(between_s)
    return np.where(size_bytes[:, used].max(axis=1) > 0, whole, 0)


def _aligned(instance: Instance, shape: Shape, used: list[int]) -> int | None:
    """Ranks on every node used, if stages begin and end with nodes, or divide them."""
    sizes = {ranks_per_node(instance, shape, j) for j in used}
    ranks, size = shape.expert_grid(used[0]), min(sizes)
    return size if len(sizes) == 1 and (ranks % size == 0 or size % ranks == 0) else None


def _most_nodes(instance: Instance, shape: Shape, used: list[int]) -> int:
    """Nodes that a stage may lie on."""
    ranks = shape.expert_grid(used[0])
    size = _aligned(instance, shape, used)
    if size is not None:
        return max(1, ranks // size)
    least = min(ranks_per_node(instance, shape, j) for j in used)
    return min(sum(shape.nodes_used), (ranks - 1) // least + 2)


def _links(instance: Instance, shape: Shape, used: list[int]) -> Iterator[tuple[int, Link, int]]:
    """Links between nodes, and how many rings share each: node group, link, rings."""
    cluster = instance.cluster
    stages = 2 if _aligned(instance, shape, used) is None else 1
    for j in used:
        sets = min(shape.ep, ranks_per_node(instance, shape, j))
        yield j, cluster.groups[j].inter_node, shape.expert_lanes(j) * sets * stages
    widest = max(used, key=lambda j: shape.degrees[j].tp)
    for link in cluster.links_among(used):
        yield widest, link, shape.expert_lanes(widest) * shape.ep * shape.pp
