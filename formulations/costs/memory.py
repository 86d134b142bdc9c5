"""Bytes per GPU: parameters, gradients, optimizer state, activations, buffers.

Static: mixed-precision Adam keeps parameter, gradient and state per parameter
(`Workload.optimizer_bytes`). ZeRO 1 splits the state over the replicas, ZeRO 2 the gradients too,
ZeRO 3 the parameters too (Rajbhandari et al. 2020, figure 1); what is split is whole for one layer
at a time, while that computes.
Activations: Korthikanti et al. 2023, equations 1 to 4, itemised in the layers; times the
micro-batches in flight. Full recomputation keeps the input of every block and, while one block
is recomputed, that block's activations; selective recomputation all but the core of attention and,
while one block is recomputed, that core.

`HeldBytes` has memory in sums up to each layer boundary, on one node group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima
from formulations.costs.magnitude import check_memory
from formulations.instance import Instance, Workload
from formulations.instance.workload import Recompute
from formulations.plan import GRADIENTS_SPLIT, PARAMETERS_SPLIT, Degrees, Recomputed, Shape
from formulations.schedules import Held
from formulations.units import ceil_div

Bytes = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
    activation_bytes: Bytes  #: per micro-batch in flight
    workspace_bytes: Bytes  #: once per stage: the largest of its layers


@dataclass(frozen=True)
class LayerMemory:
    """Bytes per GPU of a group, arrays of shape [layer]."""

    parameters: Bytes  #: a count, not bytes: of those that all replicas of a stage hold
    experts: Bytes  #: the same of experts that ep GPUs share
    weights_bytes: Bytes
    gradients_bytes: Bytes
    optimizer_bytes: Bytes
    put_off_bytes: Bytes  #: per micro-batch that waits for its weight gradients alone
    kept: tuple[Kept, ...]  #: per way to recompute that the shape allows
    buffers_bytes: int  #: per GPU: messages to and from other stages
    reserve_bytes: int  #: per GPU: the framework's

    @cached_property
    def static_bytes(self) -> Bytes:
        """[layer] what stays from step to step."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def activation_bytes(self) -> Bytes:
        """[layer] per micro-batch in flight, where as little is recomputed as the shape allows."""
        return self.kept[0].activation_bytes

    @property
    def workspace_bytes(self) -> Bytes:
        """[layer] once per stage, the largest of its layers, in that case."""
        return self.kept[0].workspace_bytes

    @property
    def fixed_bytes(self) -> int:
        """What a GPU needs whatever its layers."""
        return self.buffers_bytes + self.reserve_bytes

    def kept_by(
        self, layers: tuple[int, int], is_block: Mask, recomputed: Recomputed
    ) -> tuple[int, int]:
        """Bytes that a chunk keeps of each micro-batch in flight, and its workspace."""
        chunk = slice(*layers)
        first = is_block[chunk] & (np.cumsum(is_block[chunk]) <= recomputed.blocks)
        found = {one.way: one for one in self.kept}
        own, others = found[recomputed.way], found.get("none", found[recomputed.way])
        activation = np.where(first, own.activation_bytes[chunk], others.activation_bytes[chunk])
        workspace = np.where(first, own.workspace_bytes[chunk], others.workspace_bytes[chunk])
        return int(activation.sum()), int(workspace.max(initial=0))

    def parts(
        self,
        layers: Sequence[tuple[int, int]],
        most: Held,
        is_block: Mask,
        recomputed: Sequence[Recomputed],
    ) -> MemoryParts:
        """Memory of a GPU with these layers [start, end), per chunk, at its fullest moment."""
        own = [layer for chunk in layers for layer in range(*chunk)]
        kept_by = [
            self.kept_by(c, is_block, one) for c, one in zip(layers, recomputed, strict=True)
        ]
        whole = np.array([activation for activation, _ in kept_by])
        put_off = int(self.put_off_bytes[own].sum())
        kept = int((most.whole @ whole + most.put_off * put_off).max())
        return MemoryParts(
            weights_bytes=int(self.weights_bytes[own].sum()),
            gradients_bytes=int(self.gradients_bytes[own].sum()),
            optimizer_bytes=int(self.optimizer_bytes[own].sum()),
            activations_bytes=kept + max(workspace for _, workspace in kept_by),
            buffers_bytes=self.buffers_bytes,
            reserve_bytes=self.reserve_bytes,
        )


def _per_layer(workload: Workload, values: list[int]) -> Bytes:
    counts = [run.count for run in workload.layer_runs]
    return np.repeat(np.array(values, dtype=np.int64), counts)


def _check_sizes(
    workload: Workload, static: list[int], activation: list[int], workspace: list[int]
) -> None:
    per_layer = zip(workload.layer_runs, static, activation, workspace, strict=True)
    total = sum(
        run.count * (one + workload.global_batch * (kept + work))
        for run, one, kept, work in per_layer
    )
    check_memory(total, f"workload {workload.name}")


def _kept(
    workload: Workload, shape: Shape, j: int, split: bool, whole: list[int], way: Recompute
) -> tuple[list[int], list[int]]:
    """Per run of layers the bytes kept of a micro-batch, and the workspace."""
    layers, degrees = [run.layer for run in workload.layer_runs], shape.degrees[j]
    b, cp = degrees.sequences(shape.micro_batch), degrees.cp
    kept, again = zip(
        *(layer.recomputed_bytes(way, degrees.tp, split) for layer in layers), strict=True
    )
    workspace = [ceil_div(b * one, cp) + own for one, own in zip(again, whole, strict=True)]
    return [ceil_div(b * one, cp) for one in kept], workspace


def layer_memory(instance: Instance, shape: Shape) -> tuple[LayerMemory, ...]:
    """[J] memory of every layer under one shape, by node group; one for those of equal degrees.

    Raises InstanceError for absurd sizes.
    """
    known: dict[Degrees, LayerMemory] = {}
    for j, degrees in enumerate(shape.degrees):
        if degrees not in known:
            known[degrees] = _memory_on(instance, shape, j)
    return tuple(known[degrees] for degrees in shape.degrees)


def _memory_on(instance: Instance, shape: Shape, j: int) -> LayerMemory:
    """Memory of every layer on a GPU of node group j."""
    workload, degrees = instance.workload, shape.degrees[j]
    workload = workload.whole_experts if shape.etp else workload
    b, tp = degrees.sequences(shape.micro_batch), degrees.tp
    split = instance.splits_sequence(tp)
    layers = [run.layer for run in workload.layer_runs]
    parameters, experts = layer_parameters(workload, shape, j)
    counts = list(zip(parameters, experts, strict=True))
    weights = [
        workload.parameter_bytes * shape.own_parameters(count, j, own)
        + workload.copy_bytes * (count + own) * layer.is_block
        for layer, (count, own) in zip(layers, counts, strict=True)
    ]
    gradients = [
        workload.gradient_bytes * shape.own_gradients(count, j, own) for count, own in counts
    ]
    optimizer = [workload.state_bytes(shape.own_states(count, j, own)) for count, own in counts]
    put_off = [ceil_div(b * layer.weight_gradient_bytes(tp, split), degrees.cp) for layer in layers]
    static = [sum(parts) for parts in zip(weights, gradients, optimizer, strict=True)]
    whole = _whole_bytes(workload, shape, j, counts)
    kept = [_kept(workload, shape, j, split, whole, way) for way in shape.recompute]
    for way in kept:
        _check_sizes(workload, static, *way)
    message_bytes = ceil_div(b * workload.largest_message_bytes, degrees.cp)
    return LayerMemory(
        parameters=_per_layer(workload, parameters),
        experts=_per_layer(workload, experts),
        weights_bytes=_per_layer(workload, weights),
        gradients_bytes=_per_layer(workload, gradients),
        optimizer_bytes=_per_layer(workload, optimizer),
        put_off_bytes=_per_layer(workload, put_off),
        kept=tuple(
            Kept(way, *(_per_layer(workload, values) for values in own))
            for way, own in zip(shape.recompute, kept, strict=True)
        ),
        buffers_bytes=2 * ceil_div(message_bytes, tp if split else 1) if shape.pp > 1 else 0,
        reserve_bytes=instance.limits.framework_reserve_bytes,
    )


def layer_parameters(workload: Workload, shape: Shape, j: int) -> tuple[list[int], list[int]]:
    """Parameters per run of layers on a GPU of node group j: of all replicas alike, of experts.

    Where experts lie as all else does, all replicas have them alike.
    """
    tp, layers = shape.degrees[j].tp, [run.layer for run in workload.layer_runs]
    if not shape.has_expert_grid:
        return [layer.parameters_per_gpu(tp, shape.pp) for layer in layers], [0] * len(layers)
    lanes = shape.expert_lanes(j)
    alike = [layer.dense_per_gpu(tp, shape.pp) for layer in layers]
    return alike, [layer.experts_per_gpu(lanes, shape.ep) for layer in layers]


def _whole_bytes(
    workload: Workload, shape: Shape, j: int, counts: list[tuple[int, int]]
) -> list[int]:
    """Of each layer what ZeRO 2 and 3 have whole while it computes: gradients, parameters.

    counts: of all replicas alike, and of experts.
    """
    gradients = workload.gradient_bytes * (shape.zero >= GRADIENTS_SPLIT)
    weights = workload.parameter_bytes * (shape.zero >= PARAMETERS_SPLIT)
    split, routed = shape.ranks(j) > 1, shape.expert_ranks(j) > 1
    return [(gradients + weights) * (count * split + own * routed) for count, own in counts]


def capacity_bytes(instance: Instance) -> Bytes:
    """Usable bytes per GPU of every node group: the memory less the head-room, rounded down."""
    keep = 1 - instance.limits.memory_headroom
    return np.array([int(g.gpu.memory_bytes * keep) for g in instance.cluster.groups], np.int64)


Array = NDArray[np.int64]
Moments = tuple[tuple[int, int], ...]  #: see `formulations.schedules.stage_moments`


def before(values: Array) -> Array:
    """Sum of all values [L, ..] before each layer boundary, [L + 1, ..]."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


class HeldBytes:
    """Memory of the layers of stages on one node group, in sums up to each layer boundary."""

    def __init__(self, memory: LayerMemory) -> None:
        self.memory = memory
        self.static = before(memory.static_bytes)
        self.put_off = before(memory.put_off_bytes)
        self.activation = [before(way.activation_bytes) for way in memory.kept]
        self.least_kept = before(np.min([way.activation_bytes for way in memory.kept], axis=0))

    @cached_property
    def largest(self) -> list[Array]:
        """Per way [n, n] largest workspace of layers [start, end)."""
        return [interval_maxima(way.workspace_bytes) for way in self.memory.kept]

    def most(self, kept: Array, moments: Moments, start: Array, end: Array) -> Array:
        """[N] bytes of activations at the fullest moment; kept: [n] before each boundary."""
        own = kept[end] - kept[start]
        whole = max(count for count, _ in moments)
        if not any(late for _, late in moments):
            return whole * own
        waiting = self.put_off[end] - self.put_off[start]
        most: Array = np.max([count * own + late * waiting for count, late in moments], axis=0)
        return most
