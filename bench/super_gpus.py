"""Tensor degrees per node group, written as machines of larger GPUs: each of tp GPUs of a node.

An emulation of plans with other degrees on every GPU type, for searches that know one degree. Layer
times are those measured at the group's degree. Memory: of what a stage holds, P bytes, at most the
share r is whole on each of the tp GPUs, so that each holds at most (r + (1 - r) / tp) P. A larger
GPU has tp / (1 + (tp - 1) r) times the memory, and what fits there fits. What it cannot tell: the
tp lanes of a message between stages travel once, as with scatter and gather.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from formulations.instance import Instance, Workload
from formulations.instance.cluster import NodeGroup
from formulations.instance.profile import Profile, ProfileEntry


def _replicated_share(workload: Workload) -> float:
    """Largest share of a layer's activations that tensor parallelism does not split.

    That of parameters is smaller: biases, norms, positions.
    """
    layers = [run.layer for run in workload.layer_runs]
    pairs = [(one.replicated_activation_bytes, one.sharded_activation_bytes) for one in layers]
    return max(whole / (whole + split) for whole, split in pairs if whole)


def _merged(group: NodeGroup, tp: int, instance: Instance) -> NodeGroup:
    """The group with gpus_per_node / tp GPUs; headroom and reserve come off each of the tp."""
    gpu, limits = group.gpu, instance.limits
    left, reserve_bytes = 1 - limits.memory_headroom, limits.framework_reserve_bytes
    larger = tp / (1 + (tp - 1) * _replicated_share(instance.workload))
    usable_bytes = larger * (gpu.memory_bytes * left - reserve_bytes)
    changes = {
        "name": f"{tp} {gpu.name}",
        "memory_bytes": int((usable_bytes + reserve_bytes) / left),
        "memory_bandwidth_bytes_per_s": tp * gpu.memory_bandwidth_bytes_per_s,
    }
    size = group.gpus_per_node // tp
    return group.but(gpu=gpu.model_copy(update=changes), gpus_per_node=size)


def _renamed(profile: Profile, group: NodeGroup, tp: int) -> Iterator[ProfileEntry]:
    for entry in profile.entries:
        if (entry.gpu, entry.tp) == (group.gpu.name, tp):
            yield entry.but(gpu=f"{tp} {group.gpu.name}", tp=1)


def super_gpus(instance: Instance, degrees: Sequence[int]) -> Instance:
    """The instance in which every group has its own tensor degree; it must have a profile."""
    assert instance.profile is not None
    pairs = list(zip(instance.cluster.groups, degrees, strict=True))
    known = {e for group, tp in pairs for e in _renamed(instance.profile, group, tp)}
    profile = Profile(
        source=instance.profile.source,
        includes_tensor_parallel_traffic=True,
        entries=tuple(sorted(known, key=repr)),
    )
    groups = tuple(_merged(group, tp, instance) for group, tp in pairs)
    return instance.but(
        profile=profile, cluster={"groups": groups}, search={"tensor_parallel": (1,)}
    )


def degrees_per_group(instance: Instance) -> Iterator[tuple[int, ...]]:
    """All choices of a tensor degree per group that tile its nodes."""
    allowed = instance.search.tensor_parallel or ()
    yield from product(
        *([tp for tp in allowed if g.gpus_per_node % tp == 0] for g in instance.cluster.groups)
    )
