"""Split problems of all node orders at once: what is open after a stage is a state.

States are the nodes of every group that are used up, and the nodes of the last stage placed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.space.slots import limits_orders, may_follow
from solver.graph.placements import StageZones, allowed_layers, finish_ns, group_columns, problem_of
from solver.graph.problem import Arcs, Array, Intervals, Mask, Move, SplitProblem, by_message, walk

#: With more arcs times lanes than these, a free order is not worth its tables.
ARC_LIMIT = 20_000

Node = tuple[int, int]  #: node group, first slot
Part = tuple[int, int]  #: zone and degrees of a node group, where no stage is to span two of them
Cover = tuple[tuple[int, ...], tuple[Node, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _State:
    """Nodes used of every group, the nodes of the last stage placed, the part of the first."""

    used: tuple[int, ...]
    nodes: tuple[Node, ...]
    origin: Part


@dataclass(frozen=True)
class _Step:
    """What one arc does: nodes of the stage before and of this one, groups that begin.

    origin: part of the first stage, as far as it counts.
    """

    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    begins: tuple[int, ...]
    origin: Part


_Moves = list[list[Move[_Step]]]


@lru_cache(maxsize=256)  # all configurations with these nodes and degrees share the steps
def _stages(
    sizes: tuple[int, ...],
    counts: tuple[int, ...],
    parts: tuple[Part, ...],
    ends: frozenset[tuple[Part, Part]],
    dp: int,
    pp: int,
    max_steps: int,
) -> _Moves | None:
    """All orders of nodes with `sizes` slots, `counts` of them, over p stages of dp slots.

    parts: of every group. ends: those of a first and a last stage together, where the first counts
    for the last; else none. None if there are more than `max_steps`.
    """

    def covers(state: _State, first: int) -> Iterator[Cover]:
        """Ways to cover the stage from slot `first`: nodes used, nodes, groups that begin."""
        last = tuple(n for n in state.nodes if n[1] + sizes[n[0]] > first)
        stack: list[Cover] = [(state.used, last, ())]
        while stack:
            used, nodes, begins = stack.pop()
            end = nodes[-1][1] + sizes[nodes[-1][0]] if nodes else first
            if end >= first + dp:
                yield used, nodes, begins
                continue
            for j, count in enumerate(counts):
                apart = bool(nodes) and parts[j] != parts[nodes[-1][0]]
                if used[j] < count and not apart:
                    more = (*used[:j], used[j] + 1, *used[j + 1 :])
                    stack.append((more, (*nodes, (j, end)), (*begins, j)))

    def moves(k: int, state: _State) -> Iterator[tuple[_State, _Step]]:
        for used, nodes, begins in covers(state, k * dp):
            part = parts[nodes[0][0]]
            origin = part if ends and k == 0 else state.origin
            if not ends or k + 1 < pp or (origin, part) in ends:
                yield _State(used, nodes, origin), _Step(state.nodes, nodes, begins, origin)

    return walk(_State((0,) * len(counts), (), (0, 0)), pp, moves, max_steps)


def lane_width(tables: CostTables) -> int:
    """Replicas per lane of a free order: the greatest common divisor of dp and all node sizes.

    In slots: so node borders never part them.
    """
    used = zip(tables.slots_per_node, tables.config.nodes_used, strict=True)
    return gcd(tables.config.dp, *(size for size, count in used if count))


class _FreeOrder:
    """Turns steps into arcs with the costs of one configuration.

    sync, finish: [n, n] by row, kept once for stages of equal costs.
    """

    def __init__(self, intervals: Intervals, placer: Placer, share: int, split: bool) -> None:
        self.intervals, self.placer, self.share = intervals, placer, share
        self.tables: CostTables = intervals.tables
        self.sizes = self.tables.slots_per_node
        self.width = lane_width(self.tables)
        self.lanes = range(0, self.tables.config.dp, self.width)
        self.columns = group_columns(intervals)
        self.zones, self.split = StageZones(placer), split
        self.sync, self.finish = list[Array](), list[Array]()
        self._row_of_costs = dict[bytes, int]()
        self._row_of_stage = dict[tuple[int, tuple[Node, ...], bool], int]()

    def steps(self) -> _Moves | None:
        """Steps of all orders that the target runs; None if there are too many."""
        config, instance = self.tables.config, self.tables.instance
        limited, degrees = limits_orders(instance, config), config.degrees
        parts = tuple(
            (zone * self.split, degrees.index(choice) * limited)
            for zone, choice in zip(self.zones.zone_of_group, degrees, strict=True)
        )
        ends = frozenset(
            (first, last)
            for first, last in product(parts if limited or self.tables.tied else (), repeat=2)
            if may_follow(instance, config.zero, degrees[first[1]], degrees[last[1]], True)
        )
        limit = ARC_LIMIT // len(self.lanes)
        return _stages(self.sizes, config.nodes_used, parts, ends, config.dp, config.pp, limit)

    def _tail(self, stage: int, nodes: tuple[Node, ...], again: bool) -> int:
        """Row of a stage on these nodes; again: of a later chunk, without what comes once."""
        stage_key = stage, nodes, again
        if stage_key in self._row_of_stage:
            return self._row_of_stage[stage_key]
        groups = [j for j, _ in nodes]
        terms = [self.placer.terms(*node) for node in nodes]
        ring = self.zones.ring(groups)
        sync, latency, gather, gather_latency = self.placer.stage(stage, terms, groups, ring)
        if again:
            latency = gather_latency = 0
        extra = np.array([latency, gather_latency, *sorted(set(groups))], dtype=np.int64)
        costs_key = sync.tobytes() + gather.tobytes() + extra.tobytes()
        if costs_key not in self._row_of_costs:
            self._row_of_costs[costs_key] = len(self.sync)
            self.sync.append(interval_sums(sync) + latency)
            self.finish.append(finish_ns(self.intervals, groups, gather, gather_latency))
        row = self._row_of_stage[stage_key] = self._row_of_costs[costs_key]
        return row

    def _owners(self, nodes: tuple[Node, ...], first: int) -> list[Node]:
        """The node of every lane."""
        return [
            next(n for n in nodes if n[1] <= first + r < n[1] + self.sizes[n[0]])
            for r in self.lanes
        ]

    def _sends(self, step: _Step, stage: int) -> list[tuple[int, ...]]:
        """Per lane the messages from the stage before."""
        first, none = (stage - 1) * self.tables.config.dp, (0,) * len(self.tables.tensors)
        behind = first + self.tables.config.dp
        ends = self._owners(step.before, first), self._owners(step.nodes, behind)
        # The largest of several times, kind by kind of message.
        sends = [
            tuple(map(max, *(self.placer.terms(*n).send_ns.get(first + r, none) for n in pair)))
            for r, pair in zip(self.lanes, zip(*ends, strict=True), strict=True)
        ]
        if not self.zones.known:
            return sends
        here, there = ([j for j, _ in end] for end in ends)
        across = self.zones.terms.sends_ns(here, there, self.width)
        return [tuple(map(max, *pair)) for pair in zip(sends, across, strict=True)]

    def _embedding_ns(self, stage: int, step: _Step) -> int:
        last = self.tables.config.num_stages - 1
        if stage not in (0, last):
            return 0
        time_ns = max(self.placer.terms(*n).embedding_ns for n in step.nodes)
        if stage == last and self.split:
            across_ns = self.zones.embedding_ns(step.origin[0], step.nodes[0][0])
            time_ns = max(time_ns, across_ns)
        return time_ns

    def stage(self, s: int, moves: list[Move[_Step]]) -> Arcs:
        """Arcs of virtual stage s.

        With several chunks per device one for every step: messages are of the kind that takes
        least, and what memory allows is known of all chunks alone.
        """
        steps = [move.what for move in moves]
        config, chunked = self.tables.config, self.tables.config.vpp > 1
        k, none = s % config.pp, [(0,) * len(self.tables.tensors)] * len(self.lanes)
        owners = [self._owners(step.nodes, k * config.dp) for step in steps]
        if k:
            sends = [self._sends(step, k) for step in steps]
        elif s:
            # From the last stage around to the first one, as far as its nodes decide it.
            last = (config.pp - 1) * config.dp
            pairs = [zip(self.lanes, nodes, strict=True) for nodes in owners]
            sends = [[self.placer.terms(*n).send_ns[last + r] for r, n in pair] for pair in pairs]
        else:
            sends = [none] * len(steps)
        columns = [tuple(j for j, _ in nodes) for nodes in owners]
        # Per set of groups the layers that fit, by the message that comes: an arc each.
        masks_of: dict[tuple[int, ...], dict[int, Mask]] = {}
        for key in {tuple(sorted(set(column))) for column in columns}:
            allowed = {0: self.intervals.allowed}
            if not chunked:
                fitting = allowed_layers(self.intervals, k, key, [self.share] * len(key))
                allowed = by_message(self.tables.message_kind, k, fitting)
            masks_of[key] = allowed
        masks = [masks_of[tuple(sorted(set(column)))] for column in columns]
        arcs = [(i, n) for i, by_kind in enumerate(masks) for n in by_kind]
        step_of = np.array([i for i, _ in arcs])
        send = np.array(
            [[min(lane) if chunked else lane[n] for lane in sends[i]] for i, n in arcs],
            dtype=np.int64,
        )
        embedding = [self._embedding_ns(s, step) for step in steps]
        first = 0 if chunked else self.columns.first(k, self.share)
        return Arcs(
            source=np.array([move.source for move in moves])[step_of],
            target=np.array([move.target for move in moves])[step_of],
            column=first + np.array(columns)[step_of],
            send=send,
            send_back=send,
            tail=np.array([self._tail(k, step.nodes, s > k) for step in steps])[step_of],
            embedding=np.array(embedding, dtype=np.int64)[step_of],
            allowed=tuple(masks[i][n] for i, n in arcs),
            begins=tuple(steps[i].begins for i, _ in arcs),
        )


def order_graph(
    intervals: Intervals, placer: Placer, share: int, split: bool = False
) -> SplitProblem | None:
    """All node orders, with `share` micro-batches for every replica; None if too many arcs.

    With `split`, those in which no stage spans zones; no stages if there is none. Where stages span
    zones times are lower bounds, see `placements`. One lane if replicas are alike in every order.
    With several chunks per slot times are lower bounds, too, and later ones have to lie where the
    first ones do: `DeviceGraph` sees to that.
    """
    tables = intervals.tables
    build = _FreeOrder(intervals, placer, share, split)
    steps = build.steps()
    if steps is None:
        return None
    virtual = steps * tables.config.vpp if all(steps) else []
    stages = [build.stage(s, stage_steps) for s, stage_steps in enumerate(virtual)]
    alike = all(arcs.alike for arcs in stages)
    if alike:  # then the first lane stands for all
        names = ("column", "send", "send_back")
        first = ({name: getattr(arcs, name)[:, :1] for name in names} for arcs in stages)
        stages = [replace(arcs, **lane) for arcs, lane in zip(stages, first, strict=True)]
    shares = (share,) * (1 if alike else len(build.lanes))
    none = [np.zeros_like(intervals.forward[0])]
    sync, finish = build.sync or none, build.finish or none
    return problem_of(tables, build.columns, stages, shares, sync, finish)
