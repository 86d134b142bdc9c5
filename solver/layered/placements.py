"""Split problems from placements: one node order; all of them at once are in `all_orders`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import PlacementCosts
from formulations.costs.stage_costs import NEVER
from formulations.schedules import SCHEDULES
from solver.layered.messages import by_message
from solver.layered.problem import (
    Arcs,
    Array,
    ChunkMemory,
    Intervals,
    Mask,
    SplitProblem,
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
    allowed = intervals.allowed
    for j, m in set(zip(groups, shares, strict=True)):
        allowed = allowed & intervals.fits(j, stage, m)
    return allowed


class Columns:
    """Times [C, n, n] of stages by column: one of J kinds of node groups, at a place in a plan.

    A kind costs what its groups cost at least. Places differ where something is recomputed there,
    see `formulations.costs.stage_costs`. A place has J columns in a row.
    """

    def __init__(self, intervals: Intervals, kinds: Sequence[Sequence[int]] | None = None) -> None:
        self.intervals = intervals
        self.used = np.flatnonzero(intervals.tables.shape.nodes_used).tolist()
        self.kinds = kinds or [(j,) for j in range(len(intervals.forward))]
        self._splits = SCHEDULES[intervals.tables.shape.schedule].splits_backward
        weight = intervals.weight if self._splits else 0
        self._backward = intervals.backward - weight
        self._blocks = [self._least(self._backward)]
        self._known: dict[tuple[int, int], int] = {}

    def _least(self, values: Array) -> Array:
        return np.stack([values[list(kind)].min(axis=0) for kind in self.kinds])

    def first(self, stage: int, share: int) -> int:
        """The first of the columns of a stage of replicas with so many micro-batches."""
        if not self.intervals.stages.has_choice:
            return 0
        if (stage, share) not in self._known:
            self._known[stage, share] = self._place(stage, share)
        return len(self.kinds) * self._known[stage, share]

    def _place(self, stage: int, share: int) -> int:
        extra = np.zeros_like(self._backward)
        for j in self.used:
            extra[j] = self.intervals.stages.extra(j, stage, share)
        least = self._least(self._backward + extra)
        block = np.where(least < NEVER, least, self._blocks[0])
        for number, known in enumerate(self._blocks):
            if np.array_equal(block, known):
                return number
        self._blocks.append(block)
        return len(self._blocks) - 1

    def times(self) -> tuple[Array, Array, Array | None]:
        """Forward, backward, and weight gradients where the schedule splits them off."""
        places = (len(self._blocks), 1, 1)
        forward = np.tile(self._least(self.intervals.forward), places)
        backward = np.concatenate(self._blocks)
        weight = np.tile(self._least(self.intervals.weight), places) if self._splits else None
        return forward, backward, weight


def chunk_memory(intervals: Intervals, groups: Array, shares: Sequence[int]) -> ChunkMemory | None:
    """Memory of devices on these groups [p, R]; None with one chunk per device."""
    if intervals.tables.shape.vpp == 1:
        return None
    (share,) = set(shares)
    return ChunkMemory(intervals, groups, share)


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
    stages, columns = [], Columns(intervals)
    for k in range(shape.num_stages):
        groups = [one.groups[k % p] for one in classes]
        own = [j + columns.first(k, m) for j, m in zip(groups, shares, strict=True)]
        allowed = by_message(tables, k, allowed_layers(intervals, k, groups, shares))
        same = np.zeros(len(allowed), dtype=np.int64)
        send = np.array(
            [[one.send_ns[(k - 1) % p][n] if k else 0 for one in classes] for n in allowed]
        )
        stages.append(
            Arcs(
                source=same,
                target=same,
                column=np.array([own])[same],
                send=send,
                send_back=send,
                tail=same + k,
                embedding=same + placement.embedding_ns * (k in (0, shape.num_stages - 1)),
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
    forward, backward, weight = columns.times()
    return SplitProblem(
        schedule=shape.schedule,
        blocking=tables.instance.search.blocking_sends,
        tied=tables.tied,
        stages=tuple(stages),
        micro_batches=tuple(shares),
        forward=forward,
        backward=backward,
        sync=interval_sums(placement.sync_ns)[device] + latency[:, None, None],
        finish=np.stack(finish),
        chunks=shape.vpp,
        weight=weight,
        memory=chunk_memory(intervals, np.array([one.groups for one in classes]).T, shares),
    )
