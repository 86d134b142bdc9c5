"""Node classes: node groups without an order of nodes, and the graph of one replica over them.

A class costs what its nodes cost at least, wherever in an order they stand. So every replica of
every plan is a path that is no longer than it.

The ways of one replica, stage by stage, are an automaton. A state is the class of the last stage
and the resources used by the stages so far: the weight of a surrogate replica, places of a lane.
One way is a word of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, inf, lcm
from typing import NamedTuple

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import NodeTerms, Placer, SyncPhase
from formulations.costs.transfers import ZoneTerms
from formulations.units import ceil_div
from solver.graph.placements import Columns
from solver.graph.problem import Arcs, Array, Intervals, Mask, Move, SplitProblem, walk


@dataclass(frozen=True)
class NodeCosts:
    """Of one node group, ns.

    inside: transfer to the next stage on the same node, None if no node has two; outside: to or
    from another node. sync, gather: [L] and start-up. embedding: tied embeddings, where it has a
    node on the first stage, and on the last.
    """

    inside: int | None
    outside: int
    sync: tuple[Array, int]
    gather: tuple[Array, int]
    embedding: tuple[int, int]


def classes_of(intervals: Intervals) -> list[int]:
    """The node groups used, a class each, the fastest first."""
    work = (intervals.forward + intervals.backward)[:, 0, -1]
    used = np.flatnonzero(intervals.tables.config.nodes_used)
    groups: list[int] = used[np.argsort(work[used], kind="stable")].tolist()
    return groups


def least_sends(
    costs: Sequence[NodeCosts], groups: Sequence[int], terms: ZoneTerms, flows: int
) -> Array:
    """[J, J] least transfer between stages on two classes: the slower side counts.

    Or the link between their zones, which `flows` replicas at least share: those that no node
    border parts, or where no stage spans zones all of them. The least of all messages.
    """
    outside = np.array([cost.outside for cost in costs])
    send: Array = np.maximum(outside[:, None], outside)
    for j, cost in enumerate(costs):
        if cost.inside is not None:
            send[j, j] = min(cost.inside, cost.outside)
    if not terms.tables.instance.cluster.has_zones:
        return send
    zone = terms.zone_of_group
    across = [
        [min(terms.send_ns(i, j, flows)) if zone[i] != zone[j] else 0 for j in groups]
        for i in groups
    ]
    slowest: Array = np.maximum(send, np.array(across))
    return slowest


@dataclass(frozen=True)
class Resources:
    """What replicas use. usage: by class, what a stage there takes of each of D resources.

    most: [D] what all stages together take at most. One weight per class and its sum make a
    surrogate replica; a resource per class, of which a stage takes one, counts places.
    """

    usage: tuple[tuple[int, ...], ...]
    most: tuple[int, ...]

    @cached_property
    def least(self) -> tuple[int, ...]:
        """[D] what any stage takes."""
        return tuple(map(min, zip(*self.usage, strict=True)))

    def after(
        self, used: tuple[int, ...], node_class: int, stages_left: int
    ) -> tuple[int, ...] | None:
        """With one stage more, and so many to come; None if that takes too much."""
        after = tuple(map(int.__add__, used, self.usage[node_class]))
        pairs = zip(after, self.least, strict=True)
        needed = (n + cheapest_stage * stages_left for n, cheapest_stage in pairs)
        return after if all(map(int.__le__, needed, self.most)) else None


State = tuple[int, tuple[int, ...]]  #: class of the last stage, resources used


class Between(NamedTuple):
    """Classes of the stage before, and of this one."""

    before: int
    now: int


Step = Move[Between]


def steps(
    classes: Sequence[Mapping[int, int]], resources: Resources, max_edges: float = inf
) -> list[list[Step]] | None:
    """The steps of every stage; None if they have `max_edges` edges.

    classes: per stage those that it may stand on, with the edges of each.
    """
    edges = 0

    def moves(k: int, state: State) -> Iterator[tuple[State, Between]]:
        nonlocal edges
        for node_class, size in classes[k].items() if edges < max_edges else ():
            after = resources.after(state[1], node_class, len(classes) - 1 - k)
            if after is not None:
                edges += size
                yield (node_class, after), Between(state[0], node_class)

    stages = walk((0, (0,) * len(resources.most)), len(classes), moves)
    return stages if edges < max_edges else None


def _starts(placer: Placer, j: int) -> list[int]:
    """First slots of a node that between them show all its terms.

    Nodes start at multiples of the greatest common divisor of their sizes. Away from both ends of
    the order terms depend on the place within a stage alone, so they repeat after the least common
    multiple of that and dp. On the first stage nothing enters, from the last one nothing leaves.
    """
    tables = placer.tables
    dp, last = tables.config.dp, tables.config.slots - tables.slots_per_node[j]
    used = zip(tables.slots_per_node, tables.config.nodes_used, strict=True)
    step = gcd(*(size for size, n in used if n))
    period = dp + lcm(step, dp)
    return [start for start in range(0, last + 1, step) if start < period or start > last - dp]


def _sync(placer: Placer, phase: SyncPhase, nodes: list[NodeTerms]) -> tuple[Array, int]:
    """[L] and start-up that no stage with such a node undercuts."""
    tables = placer.tables
    dp = tables.config.dp
    fewest = ceil_div(dp, max(tables.slots_per_node))
    counts = range(max(2, fewest), min(dp, sum(tables.config.nodes_used)) + 1)
    rings: list[tuple[Array, int]] = []
    pairs = {
        (rings.inside[k], rings.latency_s[k], rings.outside.get(k))
        for rings in map(phase.rings, nodes)
        for k in rings.inside
    }
    for rate, latency_s, outside in pairs:
        inside, start = phase.inside_ns(rate), phase.latency_ns(latency_s, 1, 0.0)
        if outside is not None:
            between = [phase.outside_ns(outside, n) for n in counts]
            inside = inside + np.min(between, axis=0)
        rings.append((inside, start))
    return np.min([layers for layers, _ in rings], axis=0), min(start for _, start in rings)


def least_costs(placer: Placer, j: int) -> NodeCosts:
    """Those of node group j."""
    tables, starts = placer.tables, _starts(placer, j)
    dp, size = tables.config.dp, tables.slots_per_node[j]
    nodes = [placer.terms(j, start) for start in starts]
    # Transfers of the first kind of message, to the next stage on the same node or not.
    sends = [
        (start <= slot and slot + dp < start + size, times[0])
        for start, node in zip(starts, nodes, strict=True)
        for slot, times in node.send_ns.items()
    ]
    embedding = [(start, node.embedding_ns) for start, node in zip(starts, nodes, strict=True)]
    none = np.zeros(tables.num_layers, dtype=np.int64), 0
    return NodeCosts(
        inside=min((time for stays, time in sends if stays), default=None),
        outside=min((time for stays, time in sends if not stays), default=0),
        sync=_sync(placer, placer.sync, nodes),
        gather=_sync(placer, placer.gather, nodes) if placer.gather else none,
        embedding=(
            min(time for start, time in embedding if start < dp),
            min(time for start, time in embedding if start + size > tables.config.slots - dp),
        ),
    )


@dataclass(frozen=True)
class Tail:
    """What follows the last backward of a stage: sync, finish [n, n], embedding on both ends."""

    sync: Array
    finish: Array
    embedding: tuple[int, int]


class ClassGraph:
    """What one replica of a configuration costs on J classes, which are these node groups.

    flows: replicas at least that share a link between zones, see `least_sends`.
    """

    def __init__(
        self, intervals: Intervals, placer: Placer, groups: Sequence[int], flows: int
    ) -> None:
        self.tables, self.groups = intervals.tables, list(groups)
        self._least = [least_costs(placer, j) for j in groups]
        self._send_ns = least_sends(self._least, groups, placer.zones, flows)
        self._columns = Columns(intervals, self.groups)
        self.forward, self.backward, _ = self._columns.times()
        self.optimizer = intervals.optimizer[self.groups]

    @property
    def work(self) -> Array:
        """[J, n, n] forward and backward pass at least, without weight gradients split off."""
        return self.forward + self.backward

    @cached_property
    def tails(self) -> list[Tail]:
        """[J] of a stage with a node of the class, at least."""
        tails = list[Tail]()
        for costs, optimizer in zip(self._least, self.optimizer, strict=True):
            (sync, start), (gather, gather_start) = costs.sync, costs.gather
            finish = optimizer + interval_sums(gather) + gather_start
            tails.append(Tail(interval_sums(sync) + start, finish, costs.embedding))
        return tails

    def arcs(
        self,
        stage: int,
        steps: Sequence[Step],
        allowed: Sequence[Mask],
        rows: Array,
        tails: list[Tail],
        share: int,
    ) -> Arcs:
        """The steps of a stage, with the layers allowed on each; rows: [J] of the tails.

        Of replicas with `share` micro-batches, or more.
        """
        source, target = np.array([step[:2] for step in steps]).T
        before, now = np.array([step.what for step in steps]).T
        send = self._send_ns[before, now][:, None] * (stage > 0)
        last = stage == self.tables.config.pp - 1
        embedding = np.array([tail.embedding[last] for tail in tails], dtype=np.int64)
        return Arcs(
            source=source,
            target=target,
            column=now[:, None] + self._columns.first(stage, share),
            send=send,
            send_back=send,
            tail=rows[now],
            embedding=embedding[rows[now]] * (last or stage == 0),
            allowed=tuple(allowed),
            begins=tuple((self.groups[j],) for j in now.tolist()),
        )

    def problem(self, stages: Sequence[Arcs], tails: list[Tail], share: int) -> SplitProblem:
        """One replica with `share` micro-batches."""
        forward, backward, weight = self._columns.times()
        return SplitProblem(
            schedule=self.tables.config.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.tied,
            stages=tuple(stages),
            micro_batches=(share,),
            forward=forward,
            backward=backward,
            weight=weight,
            sync=np.stack([tail.sync for tail in tails]),
            finish=np.stack([tail.finish for tail in tails]),
        )
