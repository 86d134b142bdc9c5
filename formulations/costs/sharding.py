"""What replicas that split gradients or parameters exchange with every micro-batch, and of experts.

Volumes of ZeRO (Cheng et al. 2024, section 3; Rajbhandari et al. 2020, section 7). After the last
backward pass ZeRO 0 all-reduces gradients, ZeRO 1 reduce-scatters them; ZeRO 2 and 3 reduce-scatter
every micro-batch's in its backward pass. ZeRO 1 and 2 gather parameters once, after the optimizer;
ZeRO 3 gathers those of a layer before its forward and again before its backward pass.

Assumptions. Frameworks gather the parameters of the next layer, and reduce the gradients of the
former, while a layer is computed (PyTorch documentation, "FSDP Notes"): of each exchange the share
`search.overlap.sharding` hides behind the pass it belongs to, as far as that lasts. A collective
starts when the last replica is ready, so all go through the layers in lockstep, at the pace of the
slowest GPU in each. Experts that ep GPUs share follow the rest of their layer, over the
ranks with the same ones. There is one stage, on all nodes used:
with more, each would exchange with every micro-batch what ZeRO 1 exchanges once per step; DeepSpeed
refuses that (runtime/pipe/engine.py). So all node orders cost the same.

Experts. The same experts are on every ep-th of the S = tp dp cp / etp ranks of a stage: R = S / ep
in one ring for each of the ep sets of experts and of the etp lanes. With q_j ranks on a node of
group j, of which `together` of a group share a node, w = min(R, q_j / together) of a ring lie on a
node at most, and a ring visits at most N = min(R, nodes that a stage may lie on). So, over the node
groups used,
    inside    max_j (w - 1) / w * bytes / link inside the node
    between   max_j etp min(ep, q_j) stages (N - 1) / N * bytes / (link between nodes efficiency(N))
and once more for each link between zones used, which the rings of all stages share. `stages`: those
of a node whose rings leave it, 2 at most. Where all nodes used have equally many ranks q, and one
of q and S divides the other, a stage lies on S / q nodes, or with others on one; else it may
straddle nodes at both ends.

Every placement costs this same time, layer by layer with a start each: on equal nodes exactly,
on unlike ones that of the slowest.

Lanes. A lane is a GPU of a tensor group with those that hold the same part of each layer elsewhere:
on other replicas, and in the other parts of the slot.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import (
    ALL_REDUCE,
    HALF,
    ring_latency_s,
    ring_share,
    wire_ns,
)
from formulations.costs.compute import LayerTimes, TimeColumns, Times
from formulations.costs.experts import members_of, ranks_per_node
from formulations.costs.memory import layer_parameters
from formulations.instance import Instance, Link
from formulations.plan import GRADIENTS_SPLIT, PARAMETERS_SPLIT, Degrees, Shape
from formulations.units import ceil_ns


def lanes_like(shape: Shape, group: int) -> int:
    """The first node group whose tensor groups are as large: its lanes hold as much."""
    sizes = [degrees.tp for degrees in shape.degrees]
    return sizes.index(sizes[group])


def widest_group(shape: Shape) -> int:
    """Of the node groups used the first with the largest tensor groups."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    return max(used, key=lambda j: shape.degrees[j].tp)


def message_lanes(instance: Instance, own: Degrees, widest: int) -> int:
    """How often a message between nodes is sent by, or for, the GPUs of a slot.

    Once by each of them, for its part. Where tensor groups do not split messages every GPU needs
    its own whole, so in plans with unlike ones as often as the widest asks for.
    """
    parts = instance.splits_messages(own.tp) and instance.splits_messages(widest)
    return own.copies * (own.tp if parts else widest)


def tied_lanes(shape: Shape, group: int) -> int:
    """GPUs of a slot of a group that send their share of the tied gradients to another node.

    All of them, as every rank of Megatron-LM reduces its own with that of the other end of its
    pipeline (`distributed/finalize_model_grads.py`): two parts send as much as two replicas. Both
    ends wait for the slower of their links: of unlike ends on links alike for that of more parts.
    """
    return shape.degrees[group].width


def layers_alike(shape: Shape, lane_bytes: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Masks [L] of layers, one if the groups used agree in the bytes of all, else per kind.

    lane_bytes: [L, J]. Within a mask the slowest of rings on several groups is so for every layer.
    """
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    if len({shape.degrees[j].tp for j in used}) == 1:
        return (np.ones(len(lane_bytes), dtype=np.int64),)
    kinds, which = np.unique(lane_bytes[:, used], axis=0, return_inverse=True)
    return tuple((which.ravel() == i).astype(np.int64) for i in range(len(kinds)))


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


#: By ZeRO stage: collectives on gradients after the last backward pass, and on parameters after the
#: optimizer, as multiples of a reduce-scatter.
SYNC_FACTORS = (ALL_REDUCE, HALF, 0, 0)
GATHER_FACTORS = (0, HALF, HALF, 0)


def _ring_ns(instance: Instance, shape: Shape, size_bytes: Times) -> Times:
    """[L] a reduce-scatter or all-gather of each layer over all replicas, with its start-up.

    size_bytes: [L, J] of a lane.
    """
    cluster, num_nodes = instance.cluster, sum(shape.nodes_used)
    used = [j for j, n in enumerate(shape.nodes_used) if n]
    widest = widest_group(shape)
    members = [(j, cluster.groups[j].intra_node, _ranks(instance, shape, j)) for j in used]
    links: list[tuple[int, Link]] = [(j, cluster.groups[j].inter_node) for j in used]
    links += [(widest, link) for link in cluster.links_among(used)]
    inside = [
        wire_ns(size_bytes[:, j], ring_share(HALF, n) / link.bandwidth_bytes_per_s)
        for j, link, n in members
    ]
    efficiency = cluster.efficiency(num_nodes)
    outside = []
    for j, link in links:
        slowest = shape.degrees[j].tp / link.bandwidth_bytes_per_s
        outside_s = ring_share(HALF, num_nodes) * slowest / efficiency
        outside.append(wire_ns(size_bytes[:, j], outside_s))
    start_s = max(ring_latency_s(HALF, n, link.latency_s) for _, link, n in members)
    between_s = ring_latency_s(HALF, num_nodes, max(link.latency_s for _, link in links))
    layers = np.max(inside, axis=0) + np.max(outside, axis=0)
    whole: Times = layers + ceil_ns(start_s) + ceil_ns(between_s)
    return np.where(size_bytes[:, widest] > 0, whole, 0)


def _ranks(instance: Instance, shape: Shape, j: int) -> int:
    """Ranks of one ring inside a node of group j: tensor groups on it."""
    own = shape.degrees[j]
    return instance.cluster.groups[j].gpus_per_node // own.width * own.copies


def _exchange_ns(instance: Instance, shape: Shape, width: int) -> Times:
    """[L] the same of so many bytes per parameter, then of experts among those with the same."""
    groups = range(len(shape.degrees))
    counts = [layer_parameters(instance.workload, shape, j) for j in groups]  # [J, 2, runs]
    repeats = [run.count for run in instance.workload.layer_runs]
    alike, experts = np.repeat(np.array(counts, dtype=np.int64).transpose(1, 2, 0), repeats, axis=1)
    rings = expert_rings_ns(instance, shape, HALF, width * experts)
    return _ring_ns(instance, shape, width * alike) + rings


def with_exchanges(instance: Instance, shape: Shape, times: LayerTimes) -> LayerTimes:
    """The times of a shape from those of its (degrees, micro-batch, recomputation)."""
    used = [j for j, n in enumerate(shape.nodes_used) if n]
    if shape.zero < GRADIENTS_SPLIT or not shape.has_copies:
        return times
    workload = instance.workload
    reduce = _exchange_ns(instance, shape, workload.gradient_bytes)
    gather = np.zeros_like(reduce)
    if shape.zero >= PARAMETERS_SPLIT:
        gather = _exchange_ns(instance, shape, workload.parameter_bytes)
    inputs_ns = times.backward_ns - times.weight_ns
    share = instance.search.overlap.sharding

    def lockstep(compute: Times, exchange: Times) -> Times:
        paced, slowest = compute.copy(), compute[:, used].max(axis=1)
        hidden = np.minimum(np.floor(share * exchange).astype(np.int64), slowest)
        paced[:, used] = (slowest + exchange - hidden)[:, None]
        return paced

    weight = lockstep(times.weight_ns, reduce)
    return replace(
        times,
        forward_ns=lockstep(times.forward_ns, gather),
        backward_ns=lockstep(inputs_ns, gather) + weight,
        weight_ns=weight,
    )


def shape_times(instance: Instance, shape: Shape) -> list[LayerTimes]:
    """Times of all layers on all node groups under one shape, per way to recompute."""
    columns = TimeColumns(instance)
    members = members_of(instance, shape)
    ways = (
        columns.times(shape.degrees, shape.micro_batch, way, members) for way in shape.recompute
    )
    return [with_exchanges(instance, shape, times) for times in ways]
