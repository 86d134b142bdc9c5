"""CostTables: everything that the models and the search read, as integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE
from formulations.costs.compute import LayerTimes
from formulations.costs.magnitude import check_step
from formulations.costs.memory import LayerMemory, capacity_bytes, layer_memory
from formulations.costs.sharding import config_times, epilogue_factors, expert_rings_ns
from formulations.instance import Instance
from formulations.plan import ByPlace, Configuration, Degrees
from formulations.schedules.registry import SCHEDULES
from formulations.units import NANOSECONDS_PER_SECOND, ceil_count, ceil_div

Array = NDArray[np.int64]


@dataclass(frozen=True)
class CostTables:
    """Costs of one configuration. L layers, J node groups; times in ns, sizes in bytes per GPU.

    forward_ns, backward_ns: [L, J] per micro-batch, with tensor-parallel traffic, where as little
    is recomputed as the configuration allows; recompute_ns: that [L, J] more for each way to
    recompute, `Configuration.recompute`. weight_ns: [L, J] the part of the backward pass for weight
    gradients. optimizer_ns: [L, J] per step. memory: [J]. gradient_bytes, parameter_bytes: [L, J]
    on the wire per tp lane. capacity_bytes: [J].
    send_bytes: [J] a tensor per lane and micro-batch, one or several of which cross a boundary.
    embedding_bytes: [J] gradient of the tied matrix per lane; 0 if there is nothing to reduce.
    blocks_before: [L + 1] blocks before each layer.
    by_place: what the node groups stand for where they are places of stages, see `stage_places`.
    """

    instance: Instance
    config: Configuration
    forward_ns: Array
    backward_ns: Array
    recompute_ns: tuple[Array, ...]
    weight_ns: Array
    optimizer_ns: Array
    memory: tuple[LayerMemory, ...]
    gradient_bytes: Array
    parameter_bytes: Array
    capacity_bytes: Array
    send_bytes: tuple[int, ...]
    embedding_bytes: tuple[int, ...]
    blocks_before: Array
    origins: frozenset[str]
    by_place: ByPlace | None = None

    @property
    def plan_config(self) -> Configuration:
        """The configuration as plans have it: that of the cluster's own node groups."""
        return self.config if self.by_place is None else self.by_place.config

    @property
    def num_layers(self) -> int:
        """Length L of the chain."""
        return len(self.forward_ns)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches per step over all replicas."""
        return self.instance.workload.global_batch // self.config.micro_batch

    @property
    def passes(self) -> tuple[Array, ...]:
        """[L, J] ns per micro-batch of each kind of operation that the schedule has."""
        if not SCHEDULES[self.config.schedule].splits_backward:
            return self.forward_ns, self.backward_ns
        return self.forward_ns, self.backward_ns - self.weight_ns, self.weight_ns

    @property
    def min_blocks(self) -> int:
        """Least number of blocks per stage."""
        return 0 if self.instance.search.embedding_only_stages else 1

    @cached_property
    def slots_per_node(self) -> tuple[int, ...]:
        """Slots on one node of each node group."""
        groups = self.instance.cluster.groups
        pairs = zip(groups, self.config.degrees, strict=True)
        return tuple(group.gpus_per_node // degrees.width for group, degrees in pairs)

    @cached_property
    def work_ns(self) -> Array:
        """[L, J] forward and backward."""
        return self.forward_ns + self.backward_ns

    @property
    def least_work_ns(self) -> int:
        """What a micro-batch takes at least: every layer on the fastest of the groups used."""
        return int(self.work_ns[:, self.config.groups_used].min(axis=1).sum())

    @cached_property
    def roomiest(self) -> list[int]:
        """Of the node groups used, one of most memory of those with each degrees.

        What has room on some group used has room on one of these.
        """
        largest: dict[Degrees, int] = {}
        for j in sorted(self.config.groups_used, key=lambda j: int(self.capacity_bytes[j])):
            largest[self.config.degrees[j]] = j
        return list(largest.values())

    @property
    def tied(self) -> bool:
        """Whether the gradients of tied embeddings are reduced between first and last stage."""
        return max(self.embedding_bytes) > 0

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """[K] numbers of tensors in a message between stages, ascending: what its kind decides."""
        return tuple(sorted({layer.output_tensors for layer in self.instance.workload.layers}))

    @cached_property
    def message_kind(self) -> Array:
        """[L + 1] kind of a message over the boundary before each layer; 0 at the chain's start."""
        kinds = [
            self.tensors.index(layer.output_tensors) for layer in self.instance.workload.layers
        ]
        return np.array([0, *kinds], dtype=np.int64)

    @cached_property
    def longest_ns(self) -> int:
        """No path through the operations of a step is longer: each of them is on it once."""
        longest = self.work_ns + np.max(self.recompute_ns, axis=0)
        layers = longest[:, self.config.groups_used].max(axis=1).sum()
        optimizer = self.optimizer_ns[:, self.config.groups_used].max(axis=1).sum()
        rings = sum(int(ring.sum()) for ring in self.expert_rings_ns(ALL_REDUCE))
        rest = int(optimizer) + rings + ceil(_traffic_ns(self))
        return self.num_micro_batches * int(layers) + rest

    def expert_rings_ns(self, factor: float) -> tuple[Array, Array]:
        """[L] after the last backward pass, of such a factor, and after the optimizer."""
        workload = self.instance.workload
        experts = np.stack([memory.experts for memory in self.memory], axis=1)
        sizes = workload.gradient_bytes * experts, workload.parameter_bytes * experts
        factors = factor, epilogue_factors(self.config, self.instance.search.overlap)[1]
        phases = zip(factors, sizes, strict=True)
        sync, gather = (expert_rings_ns(self.instance, self.config, *phase) for phase in phases)
        return sync, gather

    def num_blocks(self, start: Array, end: Array) -> Array:
        """[N] blocks of the layers [start, end)."""
        return self.blocks_before[end] - self.blocks_before[start]

    @cached_property
    def is_block(self) -> NDArray[np.bool_]:
        """[L] which layers are blocks."""
        return np.diff(self.blocks_before) > 0


def optimizer_ns(
    instance: Instance, config: Configuration, j: int, parameters: Array, experts: Array
) -> Array:
    """[n] on group j: read gradient and fp32 state, write state and parameter, from its memory.

    parameters, experts: [n] on one GPU, see `formulations.costs.memory.layer_parameters`.
    """
    workload = instance.workload
    touched = workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes
    speed = instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
    counts = zip(parameters.tolist(), experts.tolist(), strict=True)
    states = [config.own(config.splits.states, alike, j, routed) for alike, routed in counts]
    return np.array([ceil_count(n * touched / speed * 1e9) for n in states], dtype=np.int64)


def send_bytes(instance: Instance, degrees: Degrees, micro_batch: int) -> int:
    """One tensor of one micro-batch that a lane of a slot sends to the next stage."""
    part_bytes = degrees.sequences(micro_batch) * instance.workload.boundary_bytes
    lanes = degrees.tp if instance.splits_messages(degrees.tp) else 1
    return ceil_div(part_bytes, degrees.cp * lanes)


def embedding_bytes(instance: Instance, tp: int, pp: int) -> int:
    """Gradient of the tied matrix per lane; 0 if there is nothing to reduce."""
    workload = instance.workload
    head = workload.layers[-1]
    if not head.tied_copy or pp == 1:
        return 0
    return workload.gradient_bytes * (
        head.parameters_per_gpu(tp, pp) - head.parameters_per_gpu(tp, 1)
    )


def _traffic_ns(tables: CostTables) -> float:
    """No path through a step is longer by what it spends on links.

    A node's link is shared by its GPUs, that between zones by all. A path crosses a boundary
    between stages at most twice for each micro-batch and each stage, with several chunks that often
    for each of them; the gradients go there and back, in every stage at the worst.
    """
    instance, config = tables.instance, tables.config
    workload, cluster = instance.workload, instance.cluster
    links = [link for g in cluster.groups for link in (g.intra_node, g.inter_node)]
    s_per_byte = max(g.gpus_per_node for g in cluster.groups) / min(
        link.bandwidth_bytes_per_s for link in links
    )
    latency_s = max(link.latency_s for link in links)
    widest = max(config.degrees[j].width for j in tables.config.groups_used)
    for link in cluster.links_among(tables.config.groups_used):
        s_per_byte = max(s_per_byte, config.slots * widest / link.bandwidth_bytes_per_s)
        latency_s = max(latency_s, link.latency_s)
    crossings = 2 * config.vpp * (tables.num_micro_batches + config.pp)
    starts = crossings * widest + 4 * config.slots
    gradients = 4 * (int(tables.gradient_bytes.max(axis=1).sum()) + max(tables.embedding_bytes))
    size_bytes = crossings * config.micro_batch * workload.largest_message_bytes + gradients
    shares = (*cluster.network_efficiency, *cluster.reduce_efficiency)
    slowest = min(efficiency for _, efficiency in shares)
    return (size_bytes * s_per_byte / slowest + starts * latency_s) * NANOSECONDS_PER_SECOND


def build_tables(
    instance: Instance, config: Configuration, times: Sequence[LayerTimes] | None = None
) -> CostTables:
    """All integer costs of one configuration; `times`: its `config_times`, if known.

    Raises InstanceError for a workload that the GPUs or links would take more than weeks for.
    """
    instance = instance.on(config.nodes_used)
    ways = times or config_times(instance, config)
    first_way = ways[0]
    memory = layer_memory(instance, config)
    workload = instance.workload
    parameters = np.stack([by_group.parameters for by_group in memory], axis=1)
    optimizer = [
        optimizer_ns(instance, config, j, by_group.parameters, by_group.experts)
        for j, by_group in enumerate(memory)
    ]
    blocks = np.array([layer.is_block for layer in workload.layers], dtype=np.int64)
    tables = CostTables(
        instance=instance,
        config=config,
        forward_ns=first_way.forward_ns,
        backward_ns=first_way.backward_ns,
        recompute_ns=tuple(way.backward_ns - first_way.backward_ns for way in ways),
        weight_ns=first_way.weight_ns,
        optimizer_ns=np.stack(optimizer, axis=1),
        memory=memory,
        gradient_bytes=workload.gradient_bytes * parameters,
        parameter_bytes=workload.parameter_bytes * parameters,
        capacity_bytes=capacity_bytes(instance),
        send_bytes=tuple(
            send_bytes(instance, by_group, config.micro_batch) for by_group in config.degrees
        ),
        embedding_bytes=tuple(
            embedding_bytes(instance, by_group.tp, config.pp) for by_group in config.degrees
        ),
        blocks_before=np.concatenate([[0], np.cumsum(blocks)]),
        origins=frozenset(first_way.origins),
    )
    check_step(_traffic_ns(tables), "cluster", "the slowest link")
    check_step(tables.longest_ns, f"workload {workload.name}", "the longest path", config.pp)
    return tables
