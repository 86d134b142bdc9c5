"""Forward and backward time of every layer on every node group, per micro-batch.

Analytic model (used where the instance has no profile), per GPU of a group of tp:
forward = F b / (tp peak maximum) * (1 + half / x) + K overhead, with F the layer's FLOPs per
sequence, K its kernel launches, x = F b / (tp K) the FLOPs per kernel: the efficiency of a
kernel is maximum * x / (x + half). Backward is twice that (Narayanan et al. 2021, appendix);
full recomputation repeats the forward pass of blocks (Korthikanti et al. 2023, section 2).
Kernel launches bound small workloads: Cheng et al. 2024, section 5.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, ring_s
from formulations.instance import Instance, Layer, NodeGroup
from formulations.instance.instance import Recompute
from formulations.instance.profile import Origin
from formulations.units import ceil_ns

Times = NDArray[np.int64]


@dataclass(frozen=True)
class LayerTimes:
    """Nanoseconds per micro-batch, shape [layer, node group]; where the figures come from."""

    forward_ns: Times
    backward_ns: Times
    origins: frozenset[Origin | str]


def analytic_forward_s(layer: Layer, group: NodeGroup, precision: str, tp: int, b: int) -> float:
    """Seconds of one forward pass of b sequences without tensor-parallel traffic."""
    gpu = group.gpu
    work_s = layer.forward_flops * b / (tp * gpu.peak_flops[precision] * gpu.efficiency_maximum)
    ramp_s = gpu.efficiency_half_flops / (gpu.peak_flops[precision] * gpu.efficiency_maximum)
    ramps = layer.kernels if layer.forward_flops else 0
    return work_s + ramps * ramp_s + layer.kernels * gpu.launch_overhead_s


def _compute_s(
    instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int
) -> tuple[float, float, Origin | str]:
    if instance.profile is not None:
        return instance.profile.time_s(layer.kind, group.gpu.name, tp, b)
    forward_s = analytic_forward_s(layer, group, instance.workload.precision, tp, b)
    return forward_s, 2 * forward_s, "analytic"


def _layer_ns(
    instance: Instance, layer: Layer, group: NodeGroup, tp: int, b: int, recompute: Recompute
) -> tuple[int, int, Origin | str]:
    workload, profile = instance.workload, instance.profile
    forward_s, backward_s, origin = _compute_s(instance, layer, group, tp, b)
    if tp > 1 and not (profile and profile.includes_tensor_parallel_traffic):
        size_bytes = workload.parameter_bytes * b * workload.sequence_length * workload.hidden_size
        one_s = ring_s(ALL_REDUCE, tp, size_bytes, group.intra_node)
        forward_s += layer.forward_all_reduces * one_s
        backward_s += layer.backward_all_reduces * one_s
    if recompute == "full" and layer.is_block:
        backward_s += forward_s
    return ceil_ns(forward_s), ceil_ns(backward_s), origin


def layer_times(instance: Instance, tp: int, micro_batch: int, recompute: Recompute) -> LayerTimes:
    """Times of all layers on all node groups; KeyError where a profile lacks a curve."""
    columns = []
    for group in instance.cluster.groups:
        rows = []
        for run in instance.workload.layer_runs:
            row = _layer_ns(instance, run.layer, group, tp, micro_batch, recompute)
            rows.extend([row] * run.count)
        columns.append(rows)
    forward = np.array([[row[0] for row in rows] for rows in columns], dtype=np.int64).T
    backward = np.array([[row[1] for row in rows] for rows in columns], dtype=np.int64).T
    origins = frozenset(row[2] for rows in columns for row in rows)
    return LayerTimes(forward.copy(), backward.copy(), origins)
