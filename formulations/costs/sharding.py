"""What replicas that split gradients or parameters (ZeRO 2 and 3) exchange with every micro-batch.

Volumes (Cheng et al. 2024, section 3; Rajbhandari et al. 2020, section 7). After the last backward
pass ZeRO 0 all-reduces gradients, ZeRO 1 reduce-scatters them; ZeRO 2 and 3 reduce-scatter every
micro-batch's in its backward pass. ZeRO 1 and 2 gather parameters once, after the optimizer; ZeRO 3
gathers those of a layer before its forward and again before its backward pass.

Assumptions. Frameworks gather the parameters of the next layer, and reduce the gradients of the
former, while a layer is computed (PyTorch documentation, "FSDP Notes"): of each exchange the share
`search.overlap.sharding` hides behind the pass it belongs to, as far as that lasts. A collective
starts when the last replica is ready, so all go through the layers in lockstep, at the pace of the
slowest GPU in each. Experts that ep GPUs share follow the rest of their layer, over the
ranks with the same ones (`formulations.costs.expert_sync`). There is one stage, on all nodes used:
with more, each would exchange with every micro-batch what ZeRO 1 exchanges once per step; DeepSpeed
refuses that (runtime/pipe/engine.py). So all node orders cost the same.
"""

from dataclasses import replace

import numpy as np

from formulations.costs.collectives import (
    ALL_REDUCE,
    HALF,
    ring_latency_s,
    ring_share,
    wire_ns,
)
from formulations.costs.compute import LayerTimes, TimeColumns, Times
from formulations.costs.expert_sync import expert_rings_ns
from formulations.costs.experts import members_of
from formulations.costs.lanes import widest_group
from formulations.costs.memory import layer_parameters
from formulations.instance import Instance
from formulations.instance.cluster import Link
from formulations.plan import GRADIENTS_SPLIT, PARAMETERS_SPLIT, Shape
from formulations.units import ceil_ns

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
