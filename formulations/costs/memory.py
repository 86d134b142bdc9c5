"""Bytes per GPU: parameters, gradients, optimizer state, activations, buffers.

Static: mixed-precision Adam keeps parameter, gradient and state per parameter
(`Workload.optimizer_bytes`). ZeRO 1 splits the state over the replicas, ZeRO 2 the gradients too,
ZeRO 3 the parameters too (Rajbhandari et al. 2020, figure 1), and where it keeps gradients until
the last micro-batch these are whole; what is split is whole for one layer at a time, while that
computes.
Activations: Korthikanti et al. 2023, equations 1 to 4, itemised in the layers; times the
micro-batches in flight. Full recomputation keeps the input of every block and, while one block
is recomputed, that block's activations; selective recomputation all but the core of attention and,
while one block is recomputed, that core.

Gradients on their way: Megatron-LM adds weight gradients up in place, in fp32, and Transformer
Engine hands autograd a dummy of the weight's format instead, which it keeps for each shape of a
weight (`get_dummy_wgrad`, release 2.3). The shapes of a block are those of its matrices, so its
workspace has a copy of them; experts have none. The product of the head has a whole gradient of
its own while its backward pass runs, and beside it, gathered over the tensor group, its input and
that one's gradient. Measured on B200: `bench.memory`.

`HeldBytes` has memory in sums up to each layer boundary, on one node group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from formulations.costs.intervals import Array, Mask, interval_maxima, sums_before
from formulations.costs.magnitude import check_memory
from formulations.instance import Instance, Workload
from formulations.instance.workload import Recompute, padded_vocabulary
from formulations.plan import Configuration, Degrees, Recomputed
from formulations.schedules.registry import Moments
from formulations.units import ceil_div


class MemoryParts(NamedTuple):
    """Bytes on one GPU by what they hold; together they are all that it needs."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int  #: of all micro-batches in flight, and what one layer needs besides
    buffers_bytes: int
    reserve_bytes: int


class Kept(NamedTuple):
    """Of a way to recompute, bytes of shape [layer]."""

    way: Recompute
    activation_bytes: Array  #: per micro-batch in flight
    workspace_bytes: Array  #: once per stage: the largest of its layers


@dataclass(frozen=True)
class LayerMemory:
    """Bytes per GPU of a group, arrays of shape [layer]."""

    parameters: Array  #: a count, not bytes: of those that all replicas of a stage hold
    experts: Array  #: the same of experts that ep GPUs share
    weights_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    put_off_bytes: Array  #: per micro-batch that waits for its weight gradients alone
    kept: tuple[Kept, ...]  #: per way to recompute that the configuration allows
    buffers_bytes: int  #: per GPU: messages to and from other stages
    reserve_bytes: int  #: per GPU: the framework's

    @cached_property
    def static_bytes(self) -> Array:
        """[layer] what stays from step to step."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def fixed_bytes(self) -> int:
        """What a GPU needs whatever its layers."""
        return self.buffers_bytes + self.reserve_bytes

    def parts(
        self,
        layers: Sequence[tuple[int, int]],
        moments: Moments,
        is_block: Mask,
        recomputed: Sequence[Recomputed],
    ) -> MemoryParts:
        """Memory of a GPU with these layers [start, end), per chunk, at its fullest moment."""
        on_gpu = [layer for chunk in layers for layer in range(*chunk)]
        # Bytes that each chunk keeps of a micro-batch in flight, and its workspace
        activations, workspaces = list[int](), list[int]()
        by_way = {kept.way: kept for kept in self.kept}
        for chunk, how in zip((slice(*run) for run in layers), recomputed, strict=True):
            first = is_block[chunk] & (np.cumsum(is_block[chunk]) <= how.blocks)
            ways = by_way[how.way], by_way.get("none", by_way[how.way])
            activation = np.where(first, *(way.activation_bytes[chunk] for way in ways))
            workspace = np.where(first, *(way.workspace_bytes[chunk] for way in ways))
            activations.append(int(activation.sum()))
            workspaces.append(int(workspace.max(initial=0)))
        put_off = int(self.put_off_bytes[on_gpu].sum())
        kept = int((np.array(moments) @ [*activations, put_off]).max())
        return MemoryParts(
            weights_bytes=int(self.weights_bytes[on_gpu].sum()),
            gradients_bytes=int(self.gradients_bytes[on_gpu].sum()),
            optimizer_bytes=int(self.optimizer_bytes[on_gpu].sum()),
            activations_bytes=kept + max(workspaces),
            buffers_bytes=self.buffers_bytes,
            reserve_bytes=self.reserve_bytes,
        )


def layer_memory(instance: Instance, config: Configuration) -> tuple[LayerMemory, ...]:
    """[J] memory of every layer under one config, by node group; one for those of equal degrees.

    Raises InstanceError for absurd sizes.
    """
    by_degrees: dict[Degrees, LayerMemory] = {}
    for j, degrees in enumerate(config.degrees):
        if degrees not in by_degrees:
            by_degrees[degrees] = _memory_on(instance, config, j)
    return tuple(by_degrees[degrees] for degrees in config.degrees)


def _memory_on(instance: Instance, config: Configuration, j: int) -> LayerMemory:
    workload, degrees = instance.workload, config.degrees[j]
    workload = workload.whole_experts if config.etp else workload
    b, tp, cp = degrees.sequences(config.micro_batch), degrees.tp, degrees.cp
    split, runs = instance.splits_sequence(tp), workload.layer_runs
    layers = [run.layer for run in runs]
    parameters, experts = layer_parameters(workload, config, j)
    # Static: what all replicas hold alike, and of experts, each split by its own ranks
    counts, splits = list(zip(parameters, experts, strict=True)), config.splits
    weights = [
        workload.parameter_bytes * config.own(splits.parameters, alike, j, routed)
        + workload.copy_bytes * (alike + routed) * layer.is_block
        for layer, (alike, routed) in zip(layers, counts, strict=True)
    ]
    gradients = [workload.gradient_bytes * config.own(splits.gradients, n, j, e) for n, e in counts]
    optimizer = [workload.state_bytes(config.own(splits.states, n, j, e)) for n, e in counts]
    # What ZeRO 2 and 3 have of one layer while it computes: whole gradients, whole parameters
    width = workload.gradient_bytes * splits.gradients
    width += workload.parameter_bytes * splits.parameters
    shared = config.ranks(j) > 1, config.expert_ranks(j) > 1
    gathered = [width * (n * shared[0] + e * shared[1]) for n, e in counts]
    on_the_way = _gradients_on_the_way(instance, config, j)

    def per_layer(values: Iterable[int]) -> Array:
        return np.repeat(np.array(list(values), dtype=np.int64), [run.count for run in runs])

    kept = []
    static = [sum(parts) for parts in zip(weights, gradients, optimizer, strict=True)]
    for way in config.recompute:
        pairs = [layer.recomputed_bytes(way, tp, split) for layer in layers]
        activation = [ceil_div(b * in_flight, cp) for in_flight, _ in pairs]
        beside = zip(pairs, gathered, on_the_way, strict=True)
        workspace = [ceil_div(b * again, cp) + whole + sent for (_, again), whole, sent in beside]
        rows = zip(runs, static, activation, workspace, strict=True)
        step_bytes = sum(
            run.count * (always + workload.global_batch * (in_flight + again))
            for run, always, in_flight, again in rows
        )
        check_memory(step_bytes, f"workload {workload.name}")
        kept.append(Kept(way, per_layer(activation), per_layer(workspace)))
    message_bytes = ceil_div(b * workload.largest_message_bytes, cp)
    return LayerMemory(
        parameters=per_layer(parameters),
        experts=per_layer(experts),
        weights_bytes=per_layer(weights),
        gradients_bytes=per_layer(gradients),
        optimizer_bytes=per_layer(optimizer),
        put_off_bytes=per_layer(
            ceil_div(b * layer.activation_bytes(tp, split, for_weights=True), cp)
            for layer in layers
        ),
        kept=tuple(kept),
        buffers_bytes=2 * ceil_div(message_bytes, tp if split else 1) if config.pp > 1 else 0,
        reserve_bytes=instance.limits.framework_reserve_bytes,
    )


def _gradients_on_the_way(instance: Instance, config: Configuration, j: int) -> list[int]:
    """[runs of layers] bytes on a GPU of node group j of weight gradients not yet added up.

    Where ZeRO splits gradients, those of a layer are counted whole instead.
    """
    workload, degrees = instance.workload, config.degrees[j]
    layers, tp = [run.layer for run in workload.layer_runs], degrees.tp
    if config.splits.gradients and config.ranks(j) > 1:
        return [0] * len(layers)
    matrices = [layer.but(vocabulary_rows=0).dense_per_gpu(tp, config.pp) for layer in layers]
    pairs = zip(layers, matrices, strict=True)
    *blocks, _ = [workload.parameter_bytes * count * layer.is_block for layer, count in pairs]
    # The head: its matrix's gradient, that of the logits, input and input gradient gathered
    head = layers[-1]
    rows = padded_vocabulary(head.vocabulary_rows, tp) // tp
    around = 0 if workload.fused_cross_entropy else workload.logits_bytes // tp
    if tp > 1 and instance.splits_sequence(tp):
        around += 2 * workload.boundary_bytes
    whole = workload.parameter_bytes * rows * head.vocabulary_columns
    whole += ceil_div(degrees.sequences(config.micro_batch) * around, degrees.cp)
    return [*blocks, max(blocks) + whole]


def layer_parameters(
    workload: Workload, config: Configuration, j: int
) -> tuple[list[int], list[int]]:
    """Parameters per run of layers on a GPU of node group j: of all replicas alike, of experts.

    Where experts lie as all else does, all replicas have them alike.
    """
    tp, layers = config.degrees[j].tp, [run.layer for run in workload.layer_runs]
    if not config.has_expert_grid:
        return [layer.parameters_per_gpu(tp, config.pp) for layer in layers], [0] * len(layers)
    lanes = config.expert_lanes(j)
    alike = [layer.dense_per_gpu(tp, config.pp) for layer in layers]
    return alike, [layer.experts_per_gpu(lanes, config.ep) for layer in layers]


def capacity_bytes(instance: Instance) -> Array:
    """Usable bytes per GPU of every node group: the memory less the head-room, rounded down."""
    keep = 1 - instance.limits.memory_headroom
    return np.array([int(g.gpu.memory_bytes * keep) for g in instance.cluster.groups], np.int64)


class HeldBytes:
    """Memory of the layers of stages on one node group, in sums up to each layer boundary."""

    def __init__(self, memory: LayerMemory) -> None:
        self.memory = memory
        self.static = sums_before(memory.static_bytes)
        self.put_off = sums_before(memory.put_off_bytes)
        self.activation = [sums_before(way.activation_bytes) for way in memory.kept]

    @cached_property
    def largest(self) -> list[Array]:
        """Per way [n, n] largest workspace of layers [start, end)."""
        return [interval_maxima(way.workspace_bytes) for way in self.memory.kept]

    def need(self, way: int, moments: Moments, start: Array, end: Array) -> Array:
        """[N] bytes of devices with chunks [v, N] that all recompute in a way, at their fullest."""
        counts, kept = np.array(moments), self.activation[way]
        activations = counts[:, : len(start)] @ (kept[end] - kept[start])
        if counts[:, -1].any():
            waiting = (self.put_off[end] - self.put_off[start]).sum(axis=0)
            activations = activations + counts[:, -1:] * waiting
        static = (self.static[end] - self.static[start]).sum(axis=0)
        need: Array = static + activations.max(axis=0) + self.largest[way][start, end].max(axis=0)
        return need
