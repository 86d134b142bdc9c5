"""Split problems from placements: one node order; all of them at once are in `all_orders`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.placement import PlacementCosts
from formulations.schedules import SCHEDULES, held, stage_moments
from solver.layered.messages import by_message
from solver.layered.problem import (
    Arcs,
    Array,
    ChunkMemory,
    Intervals,
    Mask,
    SplitProblem,
    interval_sums,
)


@dataclass(frozen=True)
class ReplicaClass:
    """Replicas that behave alike: indices, node group per stage, [p - 1][K] messages."""

    replicas: tuple[int, ...]
    groups: tuple[int, ...]
    send_ns: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.replicas)


def replica_classes(placement: PlacementCosts, dp: int) -> list[ReplicaClass]:
    """Classes of one placement in order of their first replica."""
    groups = placement.group_of_slot.reshape(-1, dp)
    members: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], list[int]] = {}
    for r in range(dp):
        sends = map(tuple, placement.send_ns[:, :, r].T.tolist())
        key = (tuple(groups[:, r].tolist()), tuple(sends))
        members.setdefault(key, []).append(r)
    return [ReplicaClass(tuple(found), *key) for key, found in members.items()]


def finish_ns(intervals: Intervals, groups: Sequence[int], gather: Array, latency: int) -> Array:
    """[n, n] optimizer on the slowest of the groups, then the gather [L] with its latency."""
    slowest: Array = intervals.optimizer[sorted(set(groups))].max(axis=0)
    if not intervals.tables.shape.zero:
        return slowest
    slowest += interval_sums(gather) + latency
    return slowest


def allowed_layers(
    intervals: Intervals, stage: int, groups: Sequence[int], shares: Sequence[int]
) -> Mask:
    """[n, n] layers that a stage may have on all these groups with these micro-batches."""
    shape = intervals.tables.shape
    allowed = intervals.allowed
    for j, m in set(zip(groups, shares, strict=True)):
        for moment in stage_moments(shape.schedule, shape.pp, stage, m, shape.vpp):
            allowed = allowed & intervals.fits(j, *moment)
    return allowed


def passes(intervals: Intervals) -> tuple[Array, Array | None]:
    """[J, n, n] ns of the backward pass, less its weight gradients where the schedule splits it."""
    if not SCHEDULES[intervals.tables.shape.schedule].splits_backward:
        return intervals.backward, None
    return intervals.backward - intervals.weight, intervals.weight


def chunk_memory(intervals: Intervals, slots: Array, shares: Sequence[int]) -> ChunkMemory | None:
    """Memory of devices on slots [p, dp] of these groups; None with one chunk per device."""
    tables, shape = intervals.tables, intervals.tables.shape
    if shape.vpp == 1:
        return None
    most = max(shares)
    whole = [
        held(shape.schedule, shape.pp, device, most, shape.vpp).whole for device in range(shape.pp)
    ]
    return ChunkMemory(
        static=intervals.static - tables.memory.fixed_bytes,
        activation=intervals.activation,
        workspace=intervals.workspace,
        fixed_bytes=tables.memory.fixed_bytes,
        whole=tuple(whole),
        capacity=tables.capacity_bytes[slots].min(axis=1),
    )


def fixed_order(
    intervals: Intervals,
    placement: PlacementCosts,
    classes: Sequence[ReplicaClass],
    shares: Sequence[int],
) -> SplitProblem:
    """The problem of one order in which every replica of class c has `shares[c]` micro-batches."""
    tables = intervals.tables
    shape = tables.shape
    slots, p = placement.group_of_slot.reshape(shape.pp, shape.dp), shape.pp
    stages = []
    for k in range(shape.num_stages):
        groups = [one.groups[k % p] for one in classes]
        allowed = by_message(tables, k, allowed_layers(intervals, k, groups, shares))
        same = np.zeros(len(allowed), dtype=np.int64)
        send = np.array(
            [[one.send_ns[(k - 1) % p][n] if k else 0 for one in classes] for n in allowed]
        )
        stages.append(
            Arcs(
                source=same,
                target=same,
                column=np.array([groups])[same],
                send=send,
                send_back=send,
                tail=same + k,
                embedding=same + placement.embedding_ns,
                allowed=tuple(allowed.values()),
                begins=((),) * len(same),
            )
        )
    once = np.arange(shape.num_stages) < p
    device = np.arange(shape.num_stages) % p
    gather_latency = (placement.gather_latency_ns[device] * once).tolist()
    finish = [
        finish_ns(intervals, slots[k % p], placement.gather_ns[k % p], gather_latency[k])
        for k in range(shape.num_stages)
    ]
    latency = placement.sync_latency_ns[device] * once
    backward, weight = passes(intervals)
    return SplitProblem(
        schedule=shape.schedule,
        blocking=tables.instance.search.blocking_sends,
        tied=tables.embedding_bytes > 0,
        stages=tuple(stages),
        micro_batches=tuple(shares),
        forward=intervals.forward,
        backward=backward,
        sync=interval_sums(placement.sync_ns)[device] + latency[:, None, None],
        finish=np.stack(finish),
        chunks=shape.vpp,
        weight=weight,
        memory=chunk_memory(intervals, slots, shares),
    )
