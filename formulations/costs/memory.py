"""Bytes per GPU: parameters, gradients, optimizer state, activations, buffers.

Static: mixed-precision Adam keeps parameter, gradient and 12 bytes of fp32 state per parameter;
the distributed optimizer (ZeRO 1) splits the state over dp (Rajbhandari et al. 2020, figure 1).
Activations: Korthikanti et al. 2023, equations 1 and 2, itemised in the layers; times the
micro-batches in flight. Full recomputation keeps the input of every block and, while one block
is recomputed, that block's activations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.costs.magnitude import check_memory
from formulations.instance import Instance, Workload
from formulations.plan import Shape
from formulations.units import ceil_div

Bytes = NDArray[np.int64]


@dataclass(frozen=True)
class LayerMemory:
    """Bytes per GPU of a group, arrays of shape [layer]."""

    parameters: Bytes  #: a count, not bytes
    static_bytes: Bytes
    activation_bytes: Bytes  #: per micro-batch in flight
    put_off_bytes: Bytes  #: per micro-batch that waits for its weight gradients alone
    workspace_bytes: Bytes  #: once per stage: the largest of its layers
    fixed_bytes: int  #: per GPU: communication buffers and the framework's reserve


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


def layer_memory(instance: Instance, shape: Shape) -> LayerMemory:
    """Memory of every layer under one shape. Raises InstanceError for absurd sizes."""
    workload, b, tp = instance.workload, shape.micro_batch, shape.tp
    shards = shape.dp if shape.zero else 1
    parameters, static, activation, put_off, workspace = [], [], [], [], []
    for layer in (run.layer for run in workload.layer_runs):
        count = layer.parameters_per_gpu(tp, shape.pp)
        whole = b * layer.activation_bytes(tp)
        recomputed = shape.recompute == "full" and layer.is_block
        parameters.append(count)
        static.append(
            count * (workload.parameter_bytes + workload.gradient_bytes)
            + workload.optimizer_bytes * ceil_div(count, shards)
        )
        activation.append(b * layer.input_bytes if recomputed else whole)
        put_off.append(b * layer.weight_gradient_bytes(tp))
        workspace.append(whole if recomputed else 0)
    _check_sizes(workload, static, activation, workspace)
    buffers = 2 * b * workload.boundary_bytes if shape.pp > 1 else 0
    return LayerMemory(
        parameters=_per_layer(workload, parameters),
        static_bytes=_per_layer(workload, static),
        activation_bytes=_per_layer(workload, activation),
        put_off_bytes=_per_layer(workload, put_off),
        workspace_bytes=_per_layer(workload, workspace),
        fixed_bytes=buffers + instance.limits.framework_reserve_bytes,
    )


def capacity_bytes(instance: Instance) -> Bytes:
    """Usable bytes per GPU of every node group: the memory less the head-room, rounded down."""
    keep = 1 - instance.limits.memory_headroom
    return np.array([int(g.gpu.memory_bytes * keep) for g in instance.cluster.groups], np.int64)
