"""Split problems from placements: one node order, or all of them at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import CostTables
from formulations.schedules import in_flight
from solver.enumeration.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums

#: With more arcs times lanes than these, a free order is not worth its tables.
ARC_LIMIT = 20_000

Node = tuple[int, int]  #: node group, first slot
Cover = tuple[tuple[int, ...], tuple[Node, ...], tuple[int, ...]]


@dataclass(frozen=True)
class ReplicaClass:
    """Replicas that behave alike: their indices, node group per stage, transfer per boundary."""

    replicas: tuple[int, ...]
    groups: tuple[int, ...]
    send_ns: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.replicas)


def replica_classes(placement: PlacementCosts, dp: int) -> list[ReplicaClass]:
    """Classes of one placement in order of their first replica."""
    groups = placement.group_of_slot.reshape(-1, dp)
    members: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for r in range(dp):
        key = (tuple(groups[:, r].tolist()), tuple(placement.send_ns[:, r].tolist()))
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
        held = in_flight(shape.schedule, shape.pp, stage, m)
        allowed = allowed & intervals.fits(j, held)
    return allowed


def fixed_order(
    intervals: Intervals,
    placement: PlacementCosts,
    classes: Sequence[ReplicaClass],
    shares: Sequence[int],
) -> SplitProblem:
    """The problem of one order in which every replica of class c has `shares[c]` micro-batches."""
    tables = intervals.tables
    shape = tables.shape
    slots = placement.group_of_slot.reshape(shape.pp, shape.dp)
    zero = np.zeros(1, dtype=np.int64)
    stages = []
    for k in range(shape.pp):
        groups = [one.groups[k] for one in classes]
        send = np.array([[one.send_ns[k - 1] if k else 0 for one in classes]])
        stages.append(
            Arcs(
                source=zero,
                target=zero,
                column=np.array([groups]),
                send=send,
                send_back=send,
                tail=np.array([k]),
                embedding=np.array([placement.embedding_ns]),
                allowed=(allowed_layers(intervals, k, groups, shares),),
                begins=((),),
            )
        )
    finish = [
        finish_ns(intervals, slots[k], placement.gather_ns[k], int(placement.gather_latency_ns[k]))
        for k in range(shape.pp)
    ]
    return SplitProblem(
        schedule=shape.schedule,
        blocking=tables.instance.search.blocking_sends,
        tied=tables.embedding_bytes > 0,
        stages=tuple(stages),
        micro_batches=tuple(shares),
        forward=intervals.forward,
        backward=intervals.backward,
        sync=interval_sums(placement.sync_ns) + placement.sync_latency_ns[:, None, None],
        finish=np.stack(finish),
    )


@dataclass(frozen=True)
class _State:
    """Nodes used of every group, and the nodes of the last stage placed."""

    used: tuple[int, ...]
    nodes: tuple[Node, ...]


@dataclass
class _Tails:
    """Sync and finish matrices of stages, kept once for equal costs."""

    intervals: Intervals
    placer: Placer
    rows: dict[bytes, int] = field(default_factory=dict)
    sync: list[Array] = field(default_factory=list)
    finish: list[Array] = field(default_factory=list)
    known: dict[tuple[int, tuple[Node, ...]], int] = field(default_factory=dict)

    def row(self, stage: int, nodes: tuple[Node, ...]) -> int:
        """Row of a stage on these nodes."""
        key = (stage, nodes)
        if key not in self.known:
            self.known[key] = self._row(stage, nodes)
        return self.known[key]

    def _row(self, stage: int, nodes: tuple[Node, ...]) -> int:
        groups = [j for j, _ in nodes]
        terms = [self.placer.terms(*node) for node in nodes]
        sync, latency, gather, gather_latency = self.placer.stage(stage, terms, groups)
        extra = np.array([latency, gather_latency, *sorted(set(groups))], dtype=np.int64)
        key = sync.tobytes() + gather.tobytes() + extra.tobytes()
        if key not in self.rows:
            self.rows[key] = len(self.sync)
            self.sync.append(interval_sums(sync) + latency)
            self.finish.append(finish_ns(self.intervals, groups, gather, gather_latency))
        return self.rows[key]


def lane_width(tables: CostTables) -> int:
    """Replicas per lane of a free order: the greatest common divisor of dp and all node sizes.

    In slots: so node borders never part them.
    """
    used = zip(tables.slots_per_node, tables.shape.nodes_used, strict=True)
    return gcd(tables.shape.dp, *(size for size, count in used if count))


class _FreeOrder:
    """Builds the arcs of all node orders, stage by stage."""

    def __init__(self, intervals: Intervals, placer: Placer, share: int) -> None:
        self.intervals, self.placer, self.share = intervals, placer, share
        self.tables: CostTables = intervals.tables
        shape = self.tables.shape
        self.sizes = self.tables.slots_per_node
        self.lanes = range(0, shape.dp, lane_width(self.tables))
        self.tails = _Tails(intervals, placer)
        self.masks: dict[tuple[int, tuple[int, ...]], Mask] = {}
        self.room = ARC_LIMIT // len(self.lanes)

    def _covers(self, state: _State, first: int, stop: int) -> Iterator[Cover]:
        """Ways to cover slots [first, stop): nodes used, nodes, groups that begin."""
        last = tuple(n for n in state.nodes if n[1] + self.sizes[n[0]] > first)
        stack: list[Cover] = [(state.used, last, ())]
        while stack:
            used, nodes, begins = stack.pop()
            end = nodes[-1][1] + self.sizes[nodes[-1][0]] if nodes else first
            if end >= stop:
                yield used, nodes, begins
                continue
            for j, count in enumerate(self.tables.shape.nodes_used):
                if used[j] < count:
                    more = (*used[:j], used[j] + 1, *used[j + 1 :])
                    stack.append((more, (*nodes, (j, end)), (*begins, j)))

    def _owners(self, nodes: tuple[Node, ...], first: int) -> list[Node]:
        """The node of every lane."""
        return [
            next(n for n in nodes if n[1] <= first + r < n[1] + self.sizes[n[0]])
            for r in self.lanes
        ]

    def _sends(self, before: tuple[Node, ...], nodes: tuple[Node, ...], stage: int) -> list[int]:
        dp = self.tables.shape.dp
        first = (stage - 1) * dp
        pairs = zip(self._owners(before, first), self._owners(nodes, first + dp), strict=True)
        return [
            max(self.placer.terms(*n).send_ns.get(first + r, 0) for n in pair)
            for r, pair in zip(self.lanes, pairs, strict=True)
        ]

    def _mask(self, stage: int, groups: tuple[int, ...]) -> Mask:
        key = (stage, tuple(sorted(set(groups))))
        if key not in self.masks:
            self.masks[key] = allowed_layers(
                self.intervals, stage, key[1], [self.share] * len(key[1])
            )
        return self.masks[key]

    def stage(self, k: int, states: list[_State]) -> tuple[Arcs, list[_State]] | None:
        """Arcs of stage k from `states` and the states that they lead to; None if too many."""
        dp, p = self.tables.shape.dp, self.tables.shape.pp
        found: dict[_State, int] = {}
        rows = []
        for index, state in enumerate(states):
            for used, nodes, begins in self._covers(state, k * dp, (k + 1) * dp):
                target = found.setdefault(_State(used, nodes), len(found))
                sends = self._sends(state.nodes, nodes, k) if k else [0] * len(self.lanes)
                groups = tuple(j for j, _ in self._owners(nodes, k * dp))
                outer = k in (0, p - 1)
                embedding = max(self.placer.terms(*n).embedding_ns for n in nodes) if outer else 0
                rows.append((index, target, groups, sends, nodes, embedding, begins))
                self.room -= 1
                if self.room < 0:
                    return None
        source, target_of, columns, send, covers, embeddings, begin = zip(*rows, strict=True)
        sends_ns = np.array(send, dtype=np.int64)
        arcs = Arcs(
            source=np.array(source),
            target=np.array(target_of),
            column=np.array(columns),
            send=sends_ns,
            send_back=sends_ns,
            tail=np.array([self.tails.row(k, nodes) for nodes in covers]),
            embedding=np.array(embeddings, dtype=np.int64),
            allowed=tuple(self._mask(k, groups) for groups in columns),
            begins=begin,
        )
        return arcs, list(found)


def free_order(intervals: Intervals, placer: Placer) -> SplitProblem | None:
    """The problem of all node orders at even shares; None if it has too many arcs, or zones.

    Between zones a link is shared by flows that one stage does not know of.
    """
    tables = intervals.tables
    if tables.instance.cluster.zone_link is not None:
        return None
    return order_graph(intervals, placer, tables.num_micro_batches // tables.shape.dp)


def order_graph(intervals: Intervals, placer: Placer, share: int) -> SplitProblem | None:
    """All node orders, with `share` micro-batches for every replica; None if too many arcs.

    Links between zones are left out: with them, times are lower bounds.
    """
    tables = intervals.tables
    shape = tables.shape
    build = _FreeOrder(intervals, placer, share)
    states = [_State((0,) * len(shape.nodes_used), ())]
    stages = []
    for k in range(shape.pp):
        placed = build.stage(k, states)
        if placed is None:
            return None
        arcs, states = placed
        stages.append(arcs)
    return SplitProblem(
        schedule=shape.schedule,
        blocking=tables.instance.search.blocking_sends,
        tied=tables.embedding_bytes > 0,
        stages=tuple(stages),
        micro_batches=(share,) * len(build.lanes),
        forward=intervals.forward,
        backward=intervals.backward,
        sync=np.stack(build.tails.sync),
        finish=np.stack(build.tails.finish),
    )
