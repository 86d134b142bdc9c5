"""Node classes: sets of node groups that are taken for one, and the graph of one replica over them.

A class costs what its groups cost at least, wherever in an order their nodes stand. So every
replica of every plan is a path that is no longer than it.

The ways of one replica, stage by stage, are an automaton. A state is the class of the last stage
and the resources used by the stages so far, or left by them: the weight of a surrogate replica,
places of a lane. One way is a word of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, lcm
from typing import NamedTuple, Protocol

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import NodeTerms, Placer, SyncPhase
from formulations.costs.transfers import ZoneTerms
from formulations.units import ceil_div
from solver.layered.placements import Columns, allowed_layers
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem


@dataclass(frozen=True)
class LeastCosts:
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

    @property
    def sync_matrix(self) -> Array:
        """[n, n] of the layers of a stage."""
        return interval_sums(self.sync[0]) + self.sync[1]

    @property
    def gather_matrix(self) -> Array:
        """[n, n] of the layers of a stage."""
        return interval_sums(self.gather[0]) + self.gather[1]

    @property
    def sync_ns(self) -> int:
        """Of all layers."""
        return int(self.sync[0].sum()) + self.sync[1]


def cheapest(parts: Sequence[LeastCosts]) -> LeastCosts:
    """What the nodes of several groups cost at least."""
    first, *others = parts
    for other in others:
        inside = [time for time in (first.inside, other.inside) if time is not None]
        sync, gather, ends = zip(
            *((part.sync, part.gather, part.embedding) for part in (first, other)), strict=True
        )
        first = LeastCosts(
            inside=min(inside, default=None),
            outside=min(first.outside, other.outside),
            sync=(np.minimum(sync[0][0], sync[1][0]), min(sync[0][1], sync[1][1])),
            gather=(np.minimum(gather[0][0], gather[1][0]), min(gather[0][1], gather[1][1])),
            embedding=(min(ends[0][0], ends[1][0]), min(ends[0][1], ends[1][1])),
        )
    return first


Kind = tuple[int, ...]  #: node groups


def kinds_of(intervals: Intervals, apart: float) -> list[Kind]:
    """The groups used, those together whose speeds are less than this relative difference apart."""
    work = (intervals.forward + intervals.backward)[:, 0, -1]
    used = np.flatnonzero(intervals.tables.shape.nodes_used)
    kinds: list[list[int]] = []
    for j in used[np.argsort(work[used], kind="stable")].tolist():
        if kinds and work[j] < work[kinds[-1][0]] * (1 + apart):
            kinds[-1].append(j)
        else:
            kinds.append([j])
    return [tuple(kind) for kind in kinds]


def least_of(values: Array, kinds: Sequence[Kind]) -> Array:
    """[J, ..] least of `values` [groups, ..] over the groups of every kind."""
    return np.stack([values[list(kind)].min(axis=0) for kind in kinds])


def allowed_on(intervals: Intervals, stage: int, kind: Kind, share: int) -> Mask:
    """[n, n] layers that some group of the kind may run as a stage with so many micro-batches."""
    masks = [allowed_layers(intervals, stage, [j], [share]) for j in kind]
    allowed: Mask = np.any(masks, axis=0)
    return allowed


def least_sends(
    costs: Sequence[LeastCosts], kinds: Sequence[Kind], terms: ZoneTerms, flows: int
) -> Array:
    """[J, J] least transfer between stages on two kinds: the slower side counts.

    Or the link between their zones, which `flows` replicas at least share: those that no node
    border parts, or where no stage spans zones all of them. The least of all messages.
    """
    outside = np.array([one.outside for one in costs])
    send: Array = np.maximum(outside[:, None], outside)
    for j, one in enumerate(costs):
        if one.inside is not None:
            send[j, j] = min(one.inside, one.outside)
    if not terms.tables.instance.cluster.has_zones:
        return send
    zone = terms.zone_of_group
    across = [
        [
            min(
                min(terms.send_ns(i, j, flows)) if zone[i] != zone[j] else 0
                for i in one
                for j in other
            )
            for other in kinds
        ]
        for one in kinds
    ]
    least: Array = np.maximum(send, np.array(across))
    return least


Tally = tuple[int, ...]


class Tallying(Protocol):
    """Of ways to run the first stages, what is added up of them."""

    @property
    def start(self) -> Tally:
        """Of no stages."""

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """With one stage more, and `left` to come; None if no replica that is meant begins so."""


@dataclass(frozen=True)
class Weighed:
    """Weights of the kinds, and the most that the surrogate replica weighs."""

    weights: tuple[int, ...]
    most: int

    def coarser(self, unit: int) -> "Weighed":
        """In larger units."""
        return Weighed(tuple(weight // unit for weight in self.weights), self.most // unit)

    @cached_property
    def least(self) -> int:
        """Weight of the lightest kind."""
        return min(self.weights)

    @property
    def start(self) -> Tally:
        """No weight."""
        return (0,)

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """Weight; None if it is too heavy."""
        weight = tally[0] + self.weights[kind]
        return (weight,) if weight <= self.most - self.least * left else None


@dataclass(frozen=True)
class Places:
    """Replicas with exactly these numbers of stages on the kinds: the tally is what is left."""

    start: Tally

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """One place of the kind less; None if there is none."""
        return (*tally[:kind], tally[kind] - 1, *tally[kind + 1 :]) if tally[kind] else None


class Step(NamedTuple):
    """One stage: states before and after, kinds before and now."""

    source: int
    target: int
    before: int
    now: int


def steps(
    kinds: Sequence[Mapping[int, int]], tallying: Tallying, most: int | None = None
) -> list[list[Step]] | None:
    """The steps of every stage; None if they have `most` edges.

    kinds: per stage those that it may stand on, with the edges of each.
    """
    states: dict[tuple[int, Tally], int] = {(0, tallying.start): 0}
    stages, edges = [], 0
    for k, own in enumerate(kinds):
        found: dict[tuple[int, Tally], int] = {}
        taken = []
        for (before, tally), index in states.items():
            for kind, size in own.items():
                whole = tallying.after(tally, kind, len(kinds) - 1 - k)
                if whole is not None:
                    target = found.setdefault((kind, whole), len(found))
                    taken.append(Step(index, target, before, kind))
                    edges += size
            if most is not None and edges >= most:
                return None
        stages.append(taken)
        states = found
    return stages


def _starts(placer: Placer, j: int) -> list[int]:
    """First slots of a node that between them show all its terms.

    Nodes start at multiples of the greatest common divisor of their sizes. Away from both ends of
    the order terms depend on the place within a stage alone, so they repeat after the least common
    multiple of that and dp. On the first stage nothing enters, from the last one nothing leaves.
    """
    tables = placer.tables
    dp, last = tables.shape.dp, tables.shape.slots - tables.slots_per_node[j]
    used = zip(tables.slots_per_node, tables.shape.nodes_used, strict=True)
    step = gcd(*(size for size, n in used if n))
    period = dp + lcm(step, dp)
    return [start for start in range(0, last + 1, step) if start < period or start > last - dp]


def _sync(placer: Placer, phase: SyncPhase, nodes: list[NodeTerms]) -> tuple[Array, int]:
    """[L] and start-up that no stage with such a node undercuts."""
    tables = placer.tables
    cluster, dp = tables.instance.cluster, tables.shape.dp
    fewest = ceil_div(dp, max(tables.slots_per_node))
    counts = range(max(2, fewest), min(dp, sum(tables.shape.nodes_used)) + 1)
    least: list[tuple[Array, int]] = []
    pairs = {
        (node.inside[k], node.inside_latency_s[k], node.outside.get(k))
        for node in nodes
        for k in node.inside
    }
    for rate, latency_s, outside in pairs:
        inside, start = phase.inside_ns(rate), phase.latency_ns(latency_s, 1, 0.0)
        if outside is not None:
            rings = [phase.outside_ns(outside, n, cluster.efficiency(n)) for n in counts]
            inside = inside + np.min(rings, axis=0)
        least.append((inside, start))
    return np.min([ring for ring, _ in least], axis=0), min(start for _, start in least)


def _sends(placer: Placer, j: int, starts: list[int]) -> Iterator[tuple[bool, int]]:
    """Transfers of nodes from these slots: whether to the same node, and ns."""
    dp, size = placer.tables.shape.dp, placer.tables.slots_per_node[j]
    for start in starts:
        for slot, (time, *_) in placer.terms(j, start).send_ns.items():
            yield start <= slot and slot + dp < start + size, time


def least_costs(placer: Placer, j: int) -> LeastCosts:
    """Those of node group j."""
    tables, starts = placer.tables, _starts(placer, j)
    dp, size = tables.shape.dp, tables.slots_per_node[j]
    nodes = [placer.terms(j, start) for start in starts]
    sends = list(_sends(placer, j, starts))
    embedding = [(start, node.embedding_ns) for start, node in zip(starts, nodes, strict=True)]
    none = np.zeros(tables.num_layers, dtype=np.int64), 0
    return LeastCosts(
        inside=min((time for own, time in sends if own), default=None),
        outside=min((time for own, time in sends if not own), default=0),
        sync=_sync(placer, placer.sync, nodes),
        gather=_sync(placer, placer.gather, nodes) if placer.gather else none,
        embedding=(
            min(time for start, time in embedding if start < dp),
            min(time for start, time in embedding if start + size > tables.shape.slots - dp),
        ),
    )


@dataclass(frozen=True)
class Tail:
    """What follows the last backward of a stage: sync, finish [n, n], embedding on both ends."""

    sync: Array
    finish: Array
    embedding: tuple[int, int]


class KindGraph:
    """What one replica of a shape costs on J kinds; of each the groups, least sync first.

    flows: replicas at least that share a link between zones, see `least_sends`.
    """

    def __init__(
        self, intervals: Intervals, placer: Placer, kinds: Sequence[Kind], flows: int
    ) -> None:
        self.tables = intervals.tables
        costs = {j: least_costs(placer, j) for kind in kinds for j in kind}
        self.kinds = [tuple(sorted(kind, key=lambda j: costs[j].sync_ns)) for kind in kinds]
        self._least = [cheapest([costs[j] for j in kind]) for kind in kinds]
        self._send_ns = least_sends(self._least, kinds, placer.zones, flows)
        self._columns = Columns(intervals, kinds)
        self.forward, self.backward, _ = self._columns.times()
        self.optimizer = least_of(intervals.optimizer, kinds)

    @property
    def work(self) -> Array:
        """[J, n, n] forward and backward pass at least, without weight gradients split off."""
        return self.forward + self.backward

    @cached_property
    def tails(self) -> list[Tail]:
        """[J] of a stage with a node of the kind, at least."""
        return [
            Tail(one.sync_matrix, optimizer + one.gather_matrix, one.embedding)
            for one, optimizer in zip(self._least, self.optimizer, strict=True)
        ]

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
        source, target, before, now = np.array(steps).T
        send = self._send_ns[before, now][:, None] * (stage > 0)
        last = stage == self.tables.shape.pp - 1
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
            begins=tuple(self.kinds[j][:1] for j in now.tolist()),
        )

    def problem(self, stages: Sequence[Arcs], tails: list[Tail], share: int) -> SplitProblem:
        """One replica with `share` micro-batches."""
        forward, backward, weight = self._columns.times()
        return SplitProblem(
            schedule=self.tables.shape.schedule,
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
