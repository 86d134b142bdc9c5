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
from solver.graph.placements import allowed_layers, group_columns, problem_of
from solver.graph.problem import Arcs, Array, Intervals, Mask, Move, SplitProblem, walk


@dataclass(frozen=True)
class NodeCosts:
    """Of one node group, ns.

    inside: transfer to the next stage on the same node, None if no node has two; outside: to or
    from another node. sync, gather: [n, n]. embedding: tied embeddings, where it has a node on the
    first stage, and on the last.
    """

    inside: int | None
    outside: int
    sync: Array
    gather: Array
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


def _sync(placer: Placer, phase: SyncPhase, nodes: list[NodeTerms]) -> Array:
    """[n, n] that no stage with such a node undercuts."""
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
    least_start = min(start for _, start in rings)
    return interval_sums(np.min([layers for layers, _ in rings], axis=0)) + least_start


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
    none = np.zeros((tables.num_layers + 1,) * 2, dtype=np.int64)
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

    flows: replicas at least that share a link between zones, see `least_sends`. forward, backward:
    [J, n, n] at least, without weight gradients split off.
    """

    def __init__(
        self, intervals: Intervals, placer: Placer, groups: Sequence[int], flows: int
    ) -> None:
        self.tables, self.groups = intervals.tables, list(groups)
        self._intervals = intervals
        self._least = [least_costs(placer, j) for j in groups]
        self._send_ns = least_sends(self._least, groups, placer.zones, flows)
        self._columns = group_columns(intervals, self.groups)
        self.forward, self.backward, _ = self._columns.times()
        self._allowed = dict[tuple[int, int], Mask]()

    @property
    def work(self) -> Array:
        """[J, n, n] of both passes, at least."""
        return self.forward + self.backward

    @cached_property
    def tails(self) -> list[Tail]:
        """[J] of a stage with a node of the class, at least."""
        optimizer = self._intervals.optimizer[self.groups]
        pairs = zip(self._least, optimizer, strict=True)
        return [
            Tail(costs.sync, least_ns + costs.gather, costs.embedding) for costs, least_ns in pairs
        ]

    def allowed(self, stage: int, share: int) -> Mask:
        """[J, n, n] layers of a stage of replicas with so many micro-batches."""
        if (stage, share) not in self._allowed:
            by_class = [allowed_layers(self._intervals, stage, [j], [share]) for j in self.groups]
            self._allowed[stage, share] = np.stack(by_class)
        return self._allowed[stage, share]

    def problem(
        self,
        stages: Sequence[Sequence[Step]],
        allowed: Sequence[Mask],
        rows: Sequence[Array],
        tails: Sequence[Tail],
        share: int,
    ) -> SplitProblem:
        """The steps of one replica with `share` micro-batches, or more.

        allowed, rows: per stage [J, n, n] its layers by class, and [J] which of the tails it has.
        """
        arcs, last = list[Arcs](), self.tables.config.pp - 1
        for k, (steps, masks, tail) in enumerate(zip(stages, allowed, rows, strict=False)):
            source, target = np.array([step[:2] for step in steps]).T
            before, now = np.array([step.what for step in steps]).T
            send = self._send_ns[before, now][:, None] * (k > 0)
            embedding = np.array([tails[row].embedding[k == last] for row in tail])
            by_class = list(masks)
            arcs.append(
                Arcs(
                    source=source,
                    target=target,
                    column=now[:, None] + self._columns.first(k, share),
                    send=send,
                    send_back=send,
                    tail=tail[now],
                    embedding=embedding[now] * (k in (0, last)),
                    allowed=tuple(by_class[j] for j in now.tolist()),
                    begins=tuple((self.groups[j],) for j in now.tolist()),
                )
            )
        sync, finish = [tail.sync for tail in tails], [tail.finish for tail in tails]
        return problem_of(self.tables, self._columns, arcs, (share,), sync, finish)
