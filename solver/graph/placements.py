"""Split problems of one node order; all of them at once are in `all_orders`.

Zones: the flows of a stage boundary are those of two neighbouring stages. An arc knows both, so its
transfers are those of `formulations.costs.transfers`. How many stages' rings share a link is not
known to one arc: its own counts, which is the least.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.stage_costs import NEVER
from formulations.costs.tables import CostTables
from formulations.costs.transfers import Pair, ZoneRing, neighbours
from formulations.schedules.registry import SCHEDULES
from solver.graph.problem import Arcs, Array, ChunkMemory, Intervals, Mask, SplitProblem, by_message


class StageZones:
    """Zones under the stages of one configuration; `slots`: node group of every slot of a stage."""

    def __init__(self, placer: Placer) -> None:
        self.placer, self.tables = placer, placer.tables
        self.terms = placer.zones
        self.zone_of_group = self.terms.zone_of_group
        self.known = self.tables.instance.cluster.has_zones

    def ring(self, groups: Sequence[int]) -> ZoneRing | None:
        """Rate and latency that a stage on nodes of these groups has at least between zones."""
        pairs = neighbours([self.zone_of_group[j] for j in groups])
        return self.terms.ring(dict.fromkeys(pairs, 1)) if pairs else None

    def embedding_ns(self, first: int, group: int) -> int:
        """Tied embeddings of a first stage in zone `first` and a last one on nodes of a group."""
        if first == self.zone_of_group[group]:
            return 0
        return self.terms.embedding_ns((first, self.zone_of_group[group]), self.tables.config.dp)

    @property
    def _pairs(self) -> list[Pair]:
        """Of zones used."""
        used = {self.zone_of_group[j] for j in self.tables.config.groups_used}
        return list(combinations(sorted(used), 2))

    def spanning_ns(self) -> int:
        """No plan in which some stage spans zones has a shorter step.

        Proof. The stage has a layer, and n >= 2 nodes, min(dp, all nodes) at most. Its last
        backward comes after a forward pass of all stages, which takes no less than every layer on
        its fastest group used. The sync of the stage follows, and its gather: tp rings at least
        share a link between two zones used, so the part between nodes takes no less than for that
        layer, the n and the link of least time, and one ring. So does the start-up, (n - 1)
        latencies of that link.
        """
        tables = self.tables
        most_nodes = min(tables.config.dp, sum(tables.config.nodes_used))
        rings = [self.terms.ring({pair: 1}) for pair in self._pairs]
        least_ns = int(tables.forward_ns[:, tables.config.groups_used].min(axis=1).sum())
        for phase in (self.placer.sync, self.placer.gather):
            times = [
                int(phase.outside_ns(rate, n).min()) + phase.latency_ns(0.0, n, latency)
                for rate, latency in rings
                for n in range(2, most_nodes + 1)
                if phase is not None
            ]
            least_ns += min(times, default=0)
        return least_ns

    @property
    def aligned(self) -> bool:
        """Whether the slots of every zone make whole stages, without which some stage spans two."""
        config, slots = self.tables.config, Counter[int]()
        for j, count in enumerate(config.nodes_used):
            slots[self.zone_of_group[j]] += count * self.tables.slots_per_node[j]
        return all(count % config.dp == 0 for count in slots.values())

    def split_by(self, cutoff: int | None) -> bool:
        """Whether no stage of a plan below the cutoff spans zones: for want of them or of time."""
        if not self.known or self.tables.config.dp == 1 or not self._pairs:
            return self.known
        return cutoff is not None and self.spanning_ns() >= cutoff


@dataclass(frozen=True)
class ReplicaClass:
    """Replicas that behave alike: indices, node group per stage, [p - 1][K] messages."""

    replicas: tuple[int, ...]
    groups: tuple[int, ...]
    send_ns: tuple[tuple[int, ...], ...]


def replica_classes(placement: PlacementCosts, dp: int) -> list[ReplicaClass]:
    """Classes of one placement in order of their first replica."""
    groups = placement.group_of_slot.reshape(-1, dp)
    members: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], list[int]] = {}
    for r in range(dp):
        sends = map(tuple, placement.send_ns[:, :, r].T.tolist())
        key = (tuple(groups[:, r].tolist()), tuple(sends))
        members.setdefault(key, []).append(r)
    return [ReplicaClass(tuple(replicas), *key) for key, replicas in members.items()]


def finish_ns(intervals: Intervals, groups: Sequence[int], gather: Array, latency: int) -> Array:
    """[n, n] optimizer on the slowest of the groups, then the gather [L] with its latency."""
    slowest: Array = intervals.optimizer[sorted(set(groups))].max(axis=0)
    if not intervals.tables.config.zero:
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
    """Times [C, n, n] of stages by column: on one of J machines, at a place in a plan.

    Machines are node groups, or places. What a stage holds decides what is recomputed there, see
    `formulations.costs.stage_costs`: `extra` says of a machine and what is held [n, n] how much
    longer backward passes are, NEVER where there is no room; None if nothing can be recomputed.
    All that is held alike has J columns in a row.
    """

    def __init__(
        self,
        forward: Array,
        backward: Array,
        weight: Array | None,
        extra: Callable[..., Array] | None,
    ) -> None:
        self._forward, self._weight, self._extra = forward, weight, extra
        self._blocks = [backward]
        self._known: dict[tuple[int, ...], int] = {}

    def first(self, *holding: int) -> int:
        """The first of the columns of stages that hold so much."""
        if self._extra is None:
            return 0
        if holding not in self._known:
            backward = self._blocks[0]
            more_ns = np.stack([self._extra(j, *holding) for j in range(len(backward))])
            block = backward + np.where(more_ns < NEVER, more_ns, 0)
            alike = (n for n, kept in enumerate(self._blocks) if np.array_equal(block, kept))
            number = self._known[holding] = next(alike, len(self._blocks))
            self._blocks += [block] * (number == len(self._blocks))
        return len(self._forward) * self._known[holding]

    def times(self) -> tuple[Array, Array, Array | None]:
        """Forward, backward, and weight gradients where the schedule splits them off."""
        repeats = (len(self._blocks), 1, 1)
        weight = None if self._weight is None else np.tile(self._weight, repeats)
        return np.tile(self._forward, repeats), np.concatenate(self._blocks), weight


def group_columns(intervals: Intervals, groups: Sequence[int] | None = None) -> Columns:
    """Those of these node groups, or all; a stage of replicas with a share of micro-batches."""
    machines = list(range(len(intervals.forward)) if groups is None else groups)
    used, stages = intervals.tables.config.nodes_used, intervals.stages
    forward, backward, weight = intervals.forward[machines], intervals.backward[machines], None
    if SCHEDULES[intervals.tables.config.schedule].splits_backward:
        weight = intervals.weight[machines]
        backward = backward - weight

    def extra(machine: int, stage: int, share: int) -> Array:
        group = machines[machine]
        return stages.extra(group, stage, share) if used[group] else np.zeros_like(backward[0])

    return Columns(forward, backward, weight, extra if stages.has_choice else None)


def problem_of(
    tables: CostTables,
    columns: Columns,
    stages: Sequence[Arcs],
    shares: Sequence[int],
    sync: Sequence[Array],
    finish: Sequence[Array],
    memory: ChunkMemory | None = None,
) -> SplitProblem:
    """The problem of a configuration with these arcs, and rows of sync and finish [n, n]."""
    forward, backward, weight = columns.times()
    config = tables.config
    return SplitProblem(
        schedule=config.schedule,
        blocking=tables.instance.search.blocking_sends,
        tied=tables.tied,
        stages=tuple(stages),
        micro_batches=tuple(shares),
        forward=forward,
        backward=backward,
        sync=np.stack(sync),
        finish=np.stack(finish),
        chunks=config.vpp,
        group=config.microbatch_group,
        weight=weight,
        memory=memory,
    )


def chunk_memory(intervals: Intervals, groups: Array, shares: Sequence[int]) -> ChunkMemory | None:
    """Memory of devices on these groups [p, R]; None with one chunk per device."""
    return None if intervals.tables.config.vpp == 1 else ChunkMemory(intervals, groups, shares[0])


def fixed_order(
    intervals: Intervals,
    placement: PlacementCosts,
    classes: Sequence[ReplicaClass],
    shares: Sequence[int],
) -> SplitProblem:
    """The problem of one order in which every replica of class c has `shares[c]` micro-batches."""
    tables = intervals.tables
    config = tables.config
    slots, p = placement.group_of_slot.reshape(config.pp, config.dp), config.pp
    stages, columns = [], group_columns(intervals)
    for k in range(config.num_stages):
        groups = [replicas.groups[k % p] for replicas in classes]
        column = [j + columns.first(k, m) for j, m in zip(groups, shares, strict=True)]
        allowed = by_message(tables.message_kind, k, allowed_layers(intervals, k, groups, shares))
        same = np.zeros(len(allowed), dtype=np.int64)
        before = [replicas.send_ns[(k - 1) % p] for replicas in classes] if k else []
        send = np.array([[sends[n] for sends in before] or [0] * len(classes) for n in allowed])
        stages.append(
            Arcs(
                source=same,
                target=same,
                column=np.array([column])[same],
                send=send,
                send_back=send,
                tail=same + k,
                embedding=same + placement.embedding_ns * (k in (0, config.num_stages - 1)),
                allowed=tuple(allowed.values()),
                begins=((),) * len(same),
            )
        )
    once = np.arange(config.num_stages) < p
    device = np.arange(config.num_stages) % p
    gather_latency = (placement.gather_latency_ns[device] * once).tolist()
    finish = [
        finish_ns(intervals, slots[k % p], placement.gather_ns[k % p], gather_latency[k])
        for k in range(config.num_stages)
    ]
    latency = placement.sync_latency_ns[device] * once
    sync = [*interval_sums(placement.sync_ns)[device] + latency[:, None, None]]
    groups_of = np.array([replicas.groups for replicas in classes]).T
    memory = chunk_memory(intervals, groups_of, shares)
    return problem_of(tables, columns, stages, shares, sync, finish, memory)
