"""What replicas that split gradients or parameters exchange with every micro-batch, and of experts.

Volumes of ZeRO (Cheng et al. 2024, section 3; Rajbhandari et al. 2020, section 7). After the last
backward pass ZeRO 0 all-reduces gradients, ZeRO 1 reduce-scatters them; ZeRO 2 and 3 reduce-scatter
every micro-batch's in its backward pass. ZeRO 1 and 2 gather parameters once, after the optimizer;
ZeRO 3 gathers those of a layer before its forward and again before its backward pass. With p
micro-batches that is 1.5 p times the traffic of ZeRO 0. Where ZeRO 3 keeps gradients until the last
micro-batch (`sync_each_batch` of Accelerate; FSDP2's `set_requires_gradient_sync`), it
reduce-scatters them once, as ZeRO 1: p + 1/2 times (Cheng et al. 2024).

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

Shard groups (`Configuration.optimizer_instances` of them, Megatron-LM's name; PyTorch's HSDP)
reduce gradients, and gather parameters, each for itself. Then the GPUs with the same shard, one of
each group, all-reduce its gradients (Megatron-LM, core 0.16, `distributed/
param_and_grad_buffer.py`). A group fills nodes, or a node holds whole groups: ranks of a ring on a
node, and nodes of a ring, are the same for all.

Lanes. A lane is a GPU of a tensor group with those that hold the same part of each layer elsewhere:
on other replicas, and in the other parts of the slot.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, HALF, ring_latency_s, ring_share, wire_ns
from formulations.costs.compute import LayerTimes, TimeColumns, Times
from formulations.costs.experts import members_of, ranks_per_node
from formulations.costs.memory import layer_parameters
from formulations.instance import Instance, Link
from formulations.instance.search import Overlap
from formulations.plan import Configuration, Degrees
from formulations.units import ceil_div, ceil_ns


def lanes_like(config: Configuration, group: int) -> int:
    """The first node group whose tensor groups are as large: its lanes hold as much."""
    sizes = [degrees.tp for degrees in config.degrees]
    return sizes.index(sizes[group])


def widest_group(config: Configuration) -> int:
    """Of the node groups used the first with the largest tensor groups."""
    return max(config.groups_used, key=lambda j: config.degrees[j].tp)


def message_lanes(instance: Instance, degrees: Degrees, widest: int) -> int:
    """How often a message between nodes is sent by, or for, the GPUs of a slot.

    Once by each of them, for its part. Where tensor groups do not split messages every GPU needs
    its own whole, so in plans with unlike ones as often as the widest asks for.
    """
    parts = instance.splits_messages(degrees.tp) and instance.splits_messages(widest)
    return degrees.copies * (degrees.tp if parts else widest)


def tied_lanes(config: Configuration, group: int) -> int:
    """GPUs of a slot of a group that send their share of the tied gradients to another node.

    All of them, as every rank of Megatron-LM reduces its own with that of the other end of its
    pipeline (`distributed/finalize_model_grads.py`): two parts send as much as two replicas. Both
    ends wait for the slower of their links: of unlike ends on links alike for that of more parts.
    """
    return config.degrees[group].width


def layers_alike(
    config: Configuration, lane_bytes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], ...]:
    """Masks [L] of layers, one if the groups used agree in the bytes of all, else per kind.

    lane_bytes: [L, J]. Within a mask the slowest of rings on several groups is so for every layer.
    """
    if len({degrees.tp for degrees in config.degrees_used}) == 1:
        return (np.ones(len(lane_bytes), dtype=np.int64),)
    kinds, which = np.unique(lane_bytes[:, config.groups_used], axis=0, return_inverse=True)
    return tuple((which.ravel() == i).astype(np.int64) for i in range(len(kinds)))


#: Of a ring: node group whose buffers go through it, link, ranks of a node or rings on the link.
Channel = tuple[int, Link, int]


def _hierarchical_ns(
    factor: float,
    size_bytes: Times,
    inside: Sequence[Channel],
    between: Sequence[Channel],
    nodes: int,
    efficiency: float,
) -> Times:
    """[L] rings inside nodes and then between them, with a start for each layer that has bytes.

    size_bytes: [L, J]. inside: with the ranks of a ring on a node. between: with the rings that
    share the link, each over so many nodes.
    """
    near = [
        wire_ns(size_bytes[:, j], ring_share(factor, ranks) / link.bandwidth_bytes_per_s)
        for j, link, ranks in inside
    ]
    share = ring_share(factor, nodes) / efficiency
    far = [
        wire_ns(size_bytes[:, j], share * rings / link.bandwidth_bytes_per_s)
        for j, link, rings in between
    ]
    start_s = max(ring_latency_s(factor, ranks, link.latency_s) for _, link, ranks in inside)
    between_s = ring_latency_s(factor, nodes, max(link.latency_s for _, link, _ in between))
    rings_ns = np.max(near, axis=0) + np.max(far, axis=0) + ceil_ns(start_s) + ceil_ns(between_s)
    has_bytes = size_bytes[:, [j for j, _, _ in inside]].max(axis=1) > 0
    return np.where(has_bytes, rings_ns, 0)


def reducing(instance: Instance, config: Configuration) -> Instance:
    """The instance with the network that reductions have: those of ZeRO 2 one of their own."""
    rates = instance.cluster.reduce_efficiency
    if config.splits.parameters or not config.splits.gradients or not rates:
        return instance
    return instance.but(cluster={"network_efficiency": rates})


def expert_rings_ns(
    instance: Instance, config: Configuration, factor: float, size_bytes: Times
) -> Times:
    """[L] rings over the ranks with the same experts; size_bytes: [L, J] of a GPU's experts."""
    used = config.groups_used
    ring, cluster = max(config.expert_ranks(j) for j in used), instance.cluster
    if ring == 1 or not factor:
        return np.zeros(len(size_bytes), dtype=np.int64)
    together = members_of(instance, config).together
    ranks = {j: ranks_per_node(instance, config, j) for j in used}
    # Nodes that a stage lies on: whole ones, or it shares one, or it may straddle nodes at its ends
    stage, size = config.expert_grid(used[0]), min(ranks.values())
    if len(set(ranks.values())) == 1 and (stage % size == 0 or size % stage == 0):
        nodes, stages = max(1, stage // size), 1
    else:
        nodes, stages = min(sum(config.nodes_used), (stage - 1) // size + 2), 2
    nodes = min(ring, nodes)
    members = {j: min(ring, ranks[j] // together) for j in used}
    inside = [(j, cluster.groups[j].ring_link(members[j]), members[j]) for j in used]
    sent = {j: config.expert_lanes(j) * min(config.ep, ranks[j]) * stages for j in used}
    between: list[Channel] = [(j, cluster.groups[j].inter_node, sent[j]) for j in used]
    widest = widest_group(config)
    rings = config.expert_lanes(widest) * config.ep * config.pp
    between += [(widest, link, rings) for link in cluster.links_among(used)]
    return _hierarchical_ns(factor, size_bytes, inside, between, nodes, cluster.efficiency(nodes))


def epilogue_factors(config: Configuration, overlap: Overlap) -> tuple[float, int]:
    """Of gradients after the last backward pass, less what is hidden; of parameters thereafter.

    As multiples of a reduce-scatter.
    """
    seen, splits = 1 - overlap.hidden_sync(config.pp, config.vpp), config.splits
    if not splits.states:
        return seen * ALL_REDUCE, 0
    return seen * HALF * (not splits.gradients), HALF * (not splits.parameters)


def shard_bytes(config: Configuration, size_bytes: Times) -> Times:
    """[L, J] of so many bytes of each tensor on a GPU, its shard's, where groups are alike."""
    ranks = config.shard_replicas * config.degrees[config.groups_used[0]].copies
    shards: Times = -(-size_bytes // ranks)
    return shards


def ring_nodes(instance: Instance, config: Configuration, num_nodes: int) -> int:
    """Nodes of a shard group, of a stage on so many: all of them, unless there are several."""
    if config.optimizer_instances == 1:
        return num_nodes
    gpus = instance.cluster.groups[config.groups_used[0]].gpus_per_node
    return max(1, config.shard_replicas * config.degrees_used[0].width // gpus)


def _exchange_ns(instance: Instance, config: Configuration, width: int, *, reduces: bool) -> Times:
    """[L] a reduce-scatter or all-gather of each layer, in shard groups, with its start-up.

    Of so many bytes per parameter; then that of experts, among the ranks with the same ones.
    Several groups then reduce their shards, those with the same one among themselves.
    """
    cluster, num_nodes = instance.cluster, sum(config.nodes_used)
    used, size = config.groups_used, config.shard_replicas
    counts = [layer_parameters(instance.workload, config, j) for j in range(len(config.degrees))]
    repeats = [run.count for run in instance.workload.layer_runs]
    by_layer = np.array(counts, dtype=np.int64).transpose(1, 2, 0)  # from [J, 2, runs]
    alike, experts = np.repeat(by_layer, repeats, axis=1)
    inside, between = list[Channel](), list[Channel]()
    across_inside, across = list[Channel](), list[Channel]()
    for j in used:
        group, degrees = cluster.groups[j], config.degrees[j]
        slots = group.gpus_per_node // degrees.width
        sharing = min(slots, size) * degrees.copies
        link = group.copies_link(degrees.tp, group.gpus_per_node // sharing)
        inside.append((j, link, sharing))
        between.append((j, group.inter_node, degrees.tp))
        groups = ceil_div(slots, size)
        across_inside.append((j, group.ring_link(groups), groups))
        across.append((j, group.inter_node, degrees.tp * sharing))
    widest = widest_group(config)
    lanes = config.degrees[widest].tp
    between += [(widest, link, lanes) for link in cluster.links_among(used)]
    nodes = ring_nodes(instance, config, num_nodes)
    sizes, rate = width * alike, cluster.efficiency
    rings_ns = _hierarchical_ns(HALF, sizes, inside, between, nodes, rate(nodes))
    if reduces and config.optimizer_instances > 1:
        nodes, sizes = min(config.optimizer_instances, num_nodes), shard_bytes(config, sizes)
        rings_ns = rings_ns + _hierarchical_ns(
            ALL_REDUCE, sizes, across_inside, across, nodes, rate(nodes)
        )
    return rings_ns + expert_rings_ns(instance, config, HALF, width * experts)


def with_exchanges(instance: Instance, config: Configuration, times: LayerTimes) -> LayerTimes:
    """The times of a configuration from those of its (degrees, micro-batch, recomputation)."""
    used = config.groups_used
    if not config.in_lockstep or not config.has_copies:
        return times
    workload = instance.workload
    reduce = gather = np.zeros(len(times.forward_ns), dtype=np.int64)
    if config.splits.gradients:
        rated = reducing(instance, config)
        reduce = _exchange_ns(rated, config, workload.gradient_bytes, reduces=True)
    if config.splits.parameters:
        gather = _exchange_ns(instance, config, workload.parameter_bytes, reduces=False)
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


def config_times(instance: Instance, config: Configuration) -> list[LayerTimes]:
    """Times of all layers on all node groups under one configuration, per way to recompute."""
    columns, at = TimeColumns(instance), (config.degrees, config.micro_batch)
    members = members_of(instance, config)
    ways = (columns.times(*at, way, members) for way in config.recompute)
    return [with_exchanges(instance, config, times) for times in ways]
