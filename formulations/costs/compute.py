"""Forward and backward time of every layer on every node group, per micro-batch.

Analytic model (used where the instance has no profile), per GPU of a group of tp: the host
launches kernels ahead of the device, so the slower of the two sets the pace.
    forward = max(device, host)        host = K * launch overhead
    device = F b / (tp peak maximum) + P ramp + 2.5 b A / memory bandwidth + M latency + attention
    ramp = half / (16-bit peak * maximum)
F: the layer's FLOPs per sequence, K: its kernel launches, of which M are bound by memory and start
with a latency, P ramp up (all, where the GPU type has no latency); A: the bytes per sequence that
one GPU keeps for the backward pass. With x = F b / (tp P) FLOPs per kernel, the first two terms are
products at efficiency maximum * x / (x + half) in 16 bit; a kernel ramps up equally long in any
precision. Fused (flash) attention is one kernel, with a maximum and half of its own for what it
works out, the masked half of the scores left out; without it the scores count as products. In
fp8 the products of blocks run at the fp8 peak, attention and head at the 16-bit one.
Backward is twice forward (Narayanan et al. 2021, appendix), of fused attention at a lower rate;
full recomputation repeats the forward pass of blocks, selective that of their
attention's core (Korthikanti et al. 2023, sections 2 and 5), of a measured forward pass its share
by this model. Sequence parallelism moves what tensor parallelism alone does, a reduce-scatter and
an all-gather for each all-reduce, and hides what it gathers again (section 4.2.2). Weight
gradients, where a schedule splits them off, take their share of the backward pass's FLOPs (Qi et
al., ICLR 2024, table 1: as many as the products with weights take forward), of a measured backward
pass too where the profile has no time of their own. Launches bound small workloads: Cheng et al.
2024, section 5. How far this is from published times:
tests/bench/test_calibration.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, ring_s
from formulations.costs.magnitude import check_step
from formulations.errors import InstanceError
from formulations.instance import GpuType, Instance, Layer, NodeGroup
from formulations.instance.precision import Precision
from formulations.instance.profile import LayerSeconds, Origin
from formulations.instance.workload import Recompute
from formulations.plan import Degrees
from formulations.units import ceil_ns

Times = NDArray[np.int64]

#: Bytes that a forward pass reads and writes per byte kept for the backward pass. Counted over a
#: GPT block with Megatron-LM's fusions, operands of products included: 78 s h for 34 s h kept,
#: and 13 a s^2 for 5 a s^2 of the scores, so 2.3 and 2.6.
MEMORY_PASSES = 2.5

#: FLOP rate of fused attention backward over forward, where backward counts twice forward: median
#: of 35 shapes of at least 2^37 FLOPs on A100 and B200 (SimuMax v1.2, system configurations).
ATTENTION_BACKWARD_RATE = 0.85


@dataclass(frozen=True)
class LayerTimes:
    """Nanoseconds per micro-batch, shape [layer, node group]; where the figures come from.

    weight_ns: the part of the backward pass that gives weight gradients, and may be put off.
    """

    forward_ns: Times
    backward_ns: Times
    weight_ns: Times
    origins: frozenset[Origin | str]


class Passes(NamedTuple):
    """Seconds of one layer without tensor-parallel traffic."""

    forward: float
    backward: float


def _attention_s(layer: Layer, gpu: GpuType, precision: Precision, share: float) -> float | None:
    """Forward pass of the fused attention kernel on `share` of a sequence; None: there is none."""
    if layer.core_kernels or not layer.attention_flops or gpu.attention_maximum is None:
        return None
    speed = gpu.peak_outside_blocks(precision) * gpu.attention_maximum
    ramp_s = gpu.attention_half_flops / (gpu.half_peak * gpu.attention_maximum)
    return layer.attention_flops * share / speed + ramp_s


def analytic_s(
    layer: Layer,
    group: NodeGroup,
    precision: Precision,
    tp: int,
    b: int,
    sequence_parallel: bool = False,
) -> Passes:
    """Both passes of b sequences on one GPU of a group of tp."""
    gpu = group.gpu
    attention_s = _attention_s(layer, gpu, precision, b / tp)
    flops = layer.forward_flops - (layer.unweighted_flops if attention_s is not None else 0)
    peak = gpu.peak_flops[precision] if layer.is_block else gpu.peak_outside_blocks(precision)
    latency_s = gpu.memory_latency_s
    apart = 0 if latency_s is None else layer.memory_kernels
    ramps = layer.kernels - apart if layer.forward_flops else 0
    half_s = gpu.efficiency_half_flops / gpu.half_peak
    products_s = (flops * b / (tp * peak) + ramps * half_s) / gpu.efficiency_maximum
    memory_bytes = MEMORY_PASSES * b * layer.activation_bytes(tp, sequence_parallel)
    memory_s = memory_bytes / gpu.memory_bandwidth_bytes_per_s
    device_s = products_s + memory_s + apart * (latency_s or 0.0)
    host_s = layer.kernels * gpu.launch_overhead_s
    attention_s = attention_s or 0.0
    backward_s = 2 * device_s + 2 * attention_s / ATTENTION_BACKWARD_RATE
    return Passes(max(device_s + attention_s, host_s), max(backward_s, 2 * host_s))


def analytic_core_s(layer: Layer, group: NodeGroup, precision: Precision, tp: int, b: int) -> float:
    """Seconds of that forward pass from the scores to the weighted sum of the values."""
    core = layer.model_copy(
        update={
            "forward_flops": layer.unweighted_flops,
            "kernels": layer.core_kernels,
            "memory_kernels": layer.core_memory_kernels,
            "replicated_activation_bytes": 0,
            "sharded_activation_bytes": layer.core_bytes,
        }
    )
    return analytic_s(core, group, precision, tp, b).forward


def _analytic_s(instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int) -> Passes:
    precision, split = instance.workload.precision, instance.search.sequence_parallel
    return analytic_s(layer, group, precision, tp, b, split)


def _core_share(instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int) -> float:
    """Of a forward pass without traffic, the share that selective recomputation repeats."""
    if not layer.core_kernels:
        return 0.0
    core_s = analytic_core_s(layer, group, instance.workload.precision, tp, b)
    return core_s / _analytic_s(instance, layer, group, tp, b).forward


def _compute_s(
    instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int
) -> tuple[LayerSeconds, Origin | str]:
    profile = instance.profile
    gpu = group.gpu.name
    if profile is not None and not (profile.completed and not profile.samples(layer.kind, gpu, tp)):
        return profile.time_s(layer.kind, gpu, tp, b)
    return LayerSeconds(*_analytic_s(instance, layer, group, tp, b), None), "analytic"


def _layer_ns(
    instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int, recompute: Recompute
) -> tuple[int, int, int, Origin | str]:
    """Forward, backward, of that weight gradients, and their origin."""
    workload, profile, calibration = instance.workload, instance.profile, instance.calibration
    (forward_s, backward_s, weight_s), origin = _compute_s(instance, layer, group, tp, b)
    core_s = forward_s * _core_share(instance, layer, group, tp, b)
    if weight_s is None:
        weight_s = layer.weight_gradient_share * backward_s
    timed_traffic = profile and profile.includes_tensor_parallel_traffic and origin != "analytic"
    if tp > 1 and not timed_traffic:
        seen = 1 - instance.search.overlap.tensor_parallel
        one_s = seen * ring_s(ALL_REDUCE, tp, b * workload.boundary_bytes, group.intra_node)
        forward_s += layer.forward_all_reduces * one_s
        backward_s += layer.backward_all_reduces * one_s
    factor = calibration.factor(layer.kind, group.gpu.name, tp, b) if calibration else None
    if factor is not None:
        origin, core_s = "corrected", factor * core_s
        forward_s, backward_s, weight_s = factor * forward_s, factor * backward_s, factor * weight_s
    if layer.is_block:
        backward_s += {"none": 0.0, "selective": core_s, "full": forward_s}[recompute]
    return ceil_ns(forward_s), ceil_ns(backward_s), int(weight_s * 1e9), origin


def has_times(instance: Instance, group: NodeGroup, tp: int) -> bool:
    """Whether the times of every layer kind on `tp` GPUs of the group are known."""
    profile, runs = instance.profile, instance.workload.layer_runs
    return profile is None or all(
        profile.has_time(run.layer.kind, group.gpu.name, tp) for run in runs
    )


@dataclass(frozen=True)
class _Column:
    """Times of all layers on one node group, [3, L] as in LayerTimes."""

    times: Times
    origins: frozenset[Origin | str]


class TimeColumns:
    """Layer times of one instance, by node group, degrees and micro-batch size; each kept."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._known: dict[tuple[int, Degrees, int, Recompute], _Column] = {}

    def times(
        self, degrees: Sequence[Degrees], micro_batch: int, recompute: Recompute
    ) -> LayerTimes:
        """Times of all layers on all node groups, each at its own degrees.

        Where nodes cannot be filled by tp GPUs, a profile may lack them: no plan reads the column,
        and it repeats another one, so that no least or largest value over the groups changes.
        Raises InstanceError where times are missing that plans need, or where a node group needs
        more than weeks for one step.
        """
        pairs = list(zip(self.instance.cluster.groups, degrees, strict=True))
        timed = [has_times(self.instance, group, own.tp) for group, own in pairs]
        for (group, own), has in zip(pairs, timed, strict=True):
            if not has and (not any(timed) or group.gpus_per_node % own.tp == 0):
                found = f"no times on {group.gpu.name} at tensor-parallel degree {own.tp}"
                allowed = "times of every layer kind, or another degree"
                raise InstanceError("profile", found, allowed)
        usual = timed.index(True)
        members = [j if has else usual for j, has in enumerate(timed)]
        columns = [self._column(j, degrees[j], micro_batch, recompute) for j in members]
        forward, backward, weight = np.stack([column.times for column in columns], axis=2)
        origins = frozenset(origin for column in columns for origin in column.origins)
        return LayerTimes(forward, backward, weight, origins)

    def _column(self, j: int, degrees: Degrees, micro_batch: int, recompute: Recompute) -> _Column:
        key = (j, degrees, micro_batch, recompute)
        if key not in self._known:
            self._known[key] = self._worked_out(*key)
        return self._known[key]

    def _worked_out(
        self, j: int, degrees: Degrees, micro_batch: int, recompute: Recompute
    ) -> _Column:
        workload, group = self.instance.workload, self.instance.cluster.groups[j]
        b, rows = micro_batch // degrees.parts, []
        for run in workload.layer_runs:
            row = _layer_ns(self.instance, run.layer, group, degrees.tp, b, recompute)
            rows.extend([row] * run.count)
        num_micro_batches = workload.global_batch / micro_batch
        work_ns = num_micro_batches * sum(forward + backward for forward, backward, *_ in rows)
        check_step(work_ns, f"cluster.groups {group.name}", f"one {group.gpu.name}")
        times = np.array([row[:3] for row in rows], dtype=np.int64).T.copy()
        return _Column(times, frozenset(row[3] for row in rows))


def layer_times(
    instance: Instance, degrees: Sequence[Degrees], micro_batch: int, recompute: Recompute
) -> LayerTimes:
    """The same, of an instance whose other times are not asked for."""
    return TimeColumns(instance).times(degrees, micro_batch, recompute)
