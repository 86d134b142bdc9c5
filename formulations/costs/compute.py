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
full recomputation repeats the forward pass of blocks, selective that of their attention's core
(Korthikanti et al. 2023, sections 2 and 5), per operator that of half of the products and all small
kernels (torchtitan), of a measured forward pass its share by this model. Sequence parallelism moves
what tensor parallelism alone does, a reduce-scatter and an all-gather for each all-reduce, and
hides what it gathers again (section 4.2.2). Weight gradients, where a schedule splits them off,
take their share of the backward pass's FLOPs (Qi et al., ICLR 2024, table 1: as many as the
products with weights take forward), of a measured backward pass too where the profile has no time
of their own. Launches bound small workloads: Cheng et al. 2024, section 5. Layers measured on a GPU
type correct these times near their size: `formulations.costs.layer_factors`. How far this is from
published times: tests/bench/test_accuracy.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, ring_s
from formulations.costs.context import context_s
from formulations.costs.experts import ALL_TO_ALLS, ALONE, Members, all_to_all_s, grouped_s
from formulations.costs.layer_factors import KernelShape, layer_factor
from formulations.costs.magnitude import check_step
from formulations.errors import InstanceError
from formulations.instance import Instance, Layer, NodeGroup
from formulations.instance.profile import LayerSeconds, Origin
from formulations.instance.workload import Precision, Recompute
from formulations.plan import Degrees
from formulations.units import ceil_ns

Times = NDArray[np.int64]

#: Bytes that a forward pass reads and writes per byte kept for the backward pass. Counted over a
#: GPT block with Megatron-LM's fusions, operands of products included: 78 s h for 34 s h kept,
#: and 13 a s^2 for 5 a s^2 of the scores, so 2.3 and 2.6.
MEMORY_PASSES = 2.5

#: FLOP rate of fused attention backward over forward, where backward counts twice forward: median
#: of 35 configurations of at least 2^37 FLOPs on A100 and B200 (SimuMax v1.2, system
#: configurations).
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


def analytic_s(
    layer: Layer,
    group: NodeGroup,
    precision: Precision,
    tp: int,
    b: float,
    sequence_parallel: bool = False,
    members: Members = ALONE,
    gradient_bytes: int = 4,
) -> tuple[float, float]:
    """Both passes of b sequences on one GPU of a group of tp, without its traffic.

    members: who shares its experts.
    """
    gpu = group.gpu
    # Fused attention: a kernel of its own, at a maximum and with a half of its own
    attention_s = 0.0
    if layer.attention_flops and not layer.core_kernels and gpu.attention_maximum is not None:
        speed = gpu.peak_outside_blocks(precision) * gpu.attention_maximum
        ramp_s = gpu.attention_half_flops / (gpu.half_peak * gpu.attention_maximum)
        attention_s = layer.attention_flops * (b / tp) / speed + ramp_s
    experts = grouped_s(layer, gpu, precision, tp, b, members, gradient_bytes)
    flops = layer.forward_flops - layer.expert_flops
    flops -= layer.unweighted_flops if attention_s else 0
    peak = gpu.peak_flops[precision] if layer.is_block else gpu.peak_outside_blocks(precision)
    # Products, what moves through memory, and launches on the host
    latency_s = gpu.memory_latency_s
    apart = 0 if latency_s is None else layer.memory_kernels
    ramps = layer.kernels - apart if layer.forward_flops else 0
    half_s = gpu.efficiency_half_flops / gpu.half_peak
    products_s = (flops * b / (tp * peak) + ramps * half_s) / gpu.efficiency_maximum
    copied = layer.copied_bytes * (members.etp or tp) // tp
    kept = layer.activation_bytes(tp, sequence_parallel) - copied
    memory_s = MEMORY_PASSES * b * kept / gpu.memory_bandwidth_bytes_per_s
    device_s = products_s + memory_s + apart * (latency_s or 0.0)
    host_s = layer.kernels * gpu.launch_overhead_s
    forward_s = device_s + attention_s + experts[0]
    backward_s = 2 * device_s + 2 * attention_s / ATTENTION_BACKWARD_RATE + experts[1]
    return max(forward_s, host_s), max(backward_s, 2 * host_s)


def _core(layer: Layer) -> Layer:
    """What selective recomputation repeats: from the scores to the weighted sum of the values."""
    return layer.but(
        forward_flops=layer.unweighted_flops,
        expert_flops=0,
        routed_bytes=0,
        kernels=layer.core_kernels,
        memory_kernels=layer.core_memory_kernels,
        replicated_activation_bytes=0,
        unsplit_bytes=0,
        sharded_activation_bytes=layer.core_bytes,
    )


def _per_op(layer: Layer) -> Layer:
    """What recomputation per operator repeats: some products, and all that memory bounds."""
    return layer.but(
        forward_flops=layer.per_op_flops,
        unweighted_flops=0,
        attention_flops=0,
        kernels=layer.per_op_kernels + layer.memory_kernels,
    )


@dataclass(frozen=True)
class _Slot:
    """Where a layer is worked on: the GPUs of a slot, with b sequences on each part of it."""

    instance: Instance
    group: NodeGroup
    degrees: Degrees
    sequences: int
    members: Members

    @property
    def share(self) -> float:
        """As many sequences' tokens as each tensor group has."""
        return self.sequences if self.degrees.cp == 1 else self.sequences / self.degrees.cp

    def passes_s(self, layer: Layer) -> tuple[float, float]:
        """By the analytic model."""
        workload, tp = self.instance.workload, self.degrees.tp
        work, split = (layer, self.group, workload.precision), self.instance.splits_sequence(tp)
        return analytic_s(*work, tp, self.share, split, self.members, workload.gradient_bytes)

    def repeated_share(self, layer: Layer, way: Recompute) -> float:
        """Of a block's forward pass without traffic, the share that recomputation repeats."""
        if way == "none" or not layer.is_block:
            return 0.0
        if way == "full":
            return 1.0
        part = _per_op(layer) if way == "per_op" else _core(layer)
        return self.passes_s(part)[0] / self.passes_s(layer)[0] if part.kernels else 0.0

    def compute_s(self, layer: Layer) -> tuple[LayerSeconds, Origin | str]:
        """As measured, or by the analytic model and layers measured near this size."""
        profile, name, tp = self.instance.profile, self.group.gpu.name, self.degrees.tp
        lacks = profile and profile.completed and not profile.samples(layer.kind, name, tp)
        if profile is not None and not lacks:
            return profile.time_s(layer.kind, name, tp, self.sequences)
        workload = self.instance.workload
        tokens = self.sequences * workload.sequence_length // self.degrees.cp
        shape = KernelShape(workload.hidden_size, tp, tokens)
        factor, source = layer_factor(self.instance, self.group.gpu, shape, layer.is_block)
        forward_s, backward_s = self.passes_s(layer)
        return LayerSeconds(factor * forward_s, factor * backward_s, None), source

    def traffic_s(self, layer: Layer, timed: bool) -> tuple[float, float, float]:
        """What the tensor group, the GPUs of a sequence and those of the experts exchange.

        Forward, backward, and of forward what recomputation per operator repeats: it keeps what
        is reduce-scattered. timed: whether the layer's times have that of the tensor group.
        """
        degrees, workload = self.degrees, self.instance.workload
        link = self.group.tensor_link(degrees.tp)
        forward_s, backward_s = 0.0, 0.0
        if not timed:
            seen = 1 - self.instance.search.overlap.tensor_parallel
            size_bytes = self.share * workload.boundary_bytes
            one_s = seen * ring_s(ALL_REDUCE, degrees.tp, size_bytes, link)
            forward_s += layer.forward_all_reduces * one_s
            backward_s += layer.backward_all_reduces * one_s
        repeated_s = forward_s / 2 if self.instance.splits_sequence(degrees.tp) else forward_s
        context = context_s(self.instance, layer, self.group, degrees, self.sequences)
        experts_s = self._experts_s(layer)
        return forward_s + context[0] + experts_s, backward_s + context[1] + experts_s, repeated_s

    def _experts_s(self, layer: Layer) -> float:
        """Tokens to their experts and back, in one pass; see `formulations.costs.experts`."""
        if self.members.ep == 1 or not layer.routed_bytes:
            return 0.0
        tp, workload, cluster = self.degrees.tp, self.instance.workload, self.instance.cluster
        lanes = self.members.etp or tp
        size_bytes = self.share * layer.routed_bytes
        sent_bytes = size_bytes / tp if self.instance.splits_sequence(tp) else size_bytes
        efficiency = cluster.efficiency(self.members.num_nodes)
        senders = self.group.gpus_per_node / efficiency
        ranks = self.group.gpus_per_node // lanes
        links = self.group.ring_link(min(self.members.ep, ranks)), self.group.inter_node
        one_s = all_to_all_s(self.members, sent_bytes, *links, senders, ranks)
        if lanes > 1:  # the copies, beside the tokens themselves
            more = size_bytes - self.share * workload.boundary_bytes
            one_s += ring_s(ALL_REDUCE, tp, more, self.group.tensor_link(tp)) / ALL_TO_ALLS
        return (1 - self.instance.search.overlap.expert_parallel) * ALL_TO_ALLS * one_s

    def layer_ns(self, layer: Layer, recompute: Recompute) -> tuple[int, int, int, Origin | str]:
        """Forward, backward, of that weight gradients, and their origin."""
        profile, calibration = self.instance.profile, self.instance.calibration
        (forward_s, backward_s, weight_s), origin = self.compute_s(layer)
        again_s = forward_s * self.repeated_share(layer, recompute)
        if weight_s is None:
            weight_s = layer.weight_gradient_share * backward_s
        has_traffic = profile is not None and profile.includes_tensor_parallel_traffic
        traffic = self.traffic_s(layer, timed=has_traffic and origin in get_args(Origin))
        forward_s += traffic[0]
        backward_s += traffic[1]
        again_s += {"full": traffic[0], "per_op": traffic[2]}.get(recompute, 0.0) * layer.is_block
        kernels = layer.kind, self.group.gpu.name, self.degrees.tp, self.sequences
        factor = calibration.factor(*kernels) if calibration else None
        if factor is not None:
            origin, times_s = "corrected", (again_s, forward_s, backward_s, weight_s)
            again_s, forward_s, backward_s, weight_s = (factor * time_s for time_s in times_s)
        return ceil_ns(forward_s), ceil_ns(backward_s + again_s), int(weight_s * 1e9), origin


def has_times(instance: Instance, group: NodeGroup, tp: int) -> bool:
    """Whether the times of every layer kind on `tp` GPUs of the group are known."""
    profile, runs = instance.profile, instance.workload.layer_runs
    return profile is None or all(
        profile.has_time(run.layer.kind, group.gpu.name, tp) for run in runs
    )


class TimeColumns:
    """Layer times of one instance, by node group, degrees and micro-batch size; each kept."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._column = cache(self._column_of)

    def times(
        self,
        degrees: Sequence[Degrees],
        micro_batch: int,
        recompute: Recompute,
        members: Members = ALONE,
    ) -> LayerTimes:
        """Times of all layers on all node groups, each at its own degrees.

        Where nodes cannot be filled by tp GPUs, a profile may lack them: no plan reads the column,
        and it repeats another one, so that no least or largest value over the groups changes.
        Where groups of GPUs that share experts span nodes, all go at the slowest one's pace.
        Raises InstanceError where times are missing that plans need, or where a node group needs
        more than weeks for one step.
        """
        pairs = list(zip(self.instance.cluster.groups, degrees, strict=True))
        timed = [has_times(self.instance, group, at.tp) for group, at in pairs]
        for (group, at), has in zip(pairs, timed, strict=True):
            if not has and (not any(timed) or group.gpus_per_node % at.tp == 0):
                lacking = f"no times on {group.gpu.name} at tensor-parallel degree {at.tp}"
                allowed = "times of every layer kind, or another degree"
                raise InstanceError("profile", lacking, allowed)
        usual = timed.index(True)
        shown = [j if has else usual for j, has in enumerate(timed)]
        columns = [self._column(j, degrees[j], micro_batch, recompute, members) for j in shown]
        forward, backward, weight = np.stack([times for times, _ in columns], axis=2)
        used, inputs = list(members.node_groups), backward - weight
        for passes in (forward, inputs, weight) if used else ():
            passes[:, used] = passes[:, used].max(axis=1)[:, None]
        origins = frozenset(origin for _, origins in columns for origin in origins)
        return LayerTimes(forward, inputs + weight, weight, origins)

    def _column_of(
        self, j: int, degrees: Degrees, micro_batch: int, recompute: Recompute, members: Members
    ) -> tuple[Times, frozenset[Origin | str]]:
        """[3, L] times of all layers on one node group, as in LayerTimes, and their origins."""
        workload, group = self.instance.workload, self.instance.cluster.groups[j]
        slot = _Slot(self.instance, group, degrees, degrees.sequences(micro_batch), members)
        rows = []
        for run in (workload.whole_experts if members.etp else workload).layer_runs:
            row = slot.layer_ns(run.layer, recompute)
            rows.extend([row] * run.count)
        num_micro_batches = workload.global_batch / micro_batch
        work_ns = num_micro_batches * sum(forward + backward for forward, backward, *_ in rows)
        check_step(work_ns, f"cluster.groups {group.name}", f"one {group.gpu.name}")
        times = np.array([row[:3] for row in rows], dtype=np.int64).T.copy()
        return times, frozenset(row[3] for row in rows)
