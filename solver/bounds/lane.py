"""The ways of one lane on given numbers of nodes, whatever the node order.

Lanes are the replicas in blocks of q = `lane_width`, which no node border parts: on every stage a
lane stands on one node. So a node of c slots is c / q places, each for one stage of one lane, and a
lane of p stages takes p places. Where every node used is one place, and no link joins zones, any
dealing of the places to stages and lanes is a node order: the ways here are `exact`.

Kinds are node groups; several of them together cost what their nodes cost at least. The tail of a
stage depends on all nodes of the stage. A lane knows only its own, which gives a lower bound,
unless it is decided on which kinds the stage stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.costs.placement import Placer
from solver.bounds.kinds import Kind, allowed_on, kinds_of, least_of, least_sends
from solver.bounds.node_costs import cheapest, least_costs
from solver.layered.placements import finish_ns, lane_width, passes
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums

#: Kinds are taken together until the ways on all counts have no more edges, about.
MOST_EDGES = 50_000_000
#: More than float noise, relative.
MARGIN = 1e-9

Numbers = NDArray[np.float64]
Counts = tuple[int, ...]  #: places of one lane by kind
Hosts = tuple[int, ...] | None  #: the kinds that a stage stands on; None while undecided
Row = tuple[int, int, int, int]  #: state before, state after, kind before, kind


@dataclass(frozen=True)
class Stages:
    """What may be used: per stage [n, n] its layers, and its hosts."""

    layers: tuple[Mask, ...]
    hosts: tuple[Hosts, ...]

    def with_layers(self, k: int, start: int, end: int) -> "Stages":
        """Only these layers on stage k."""
        only = np.zeros_like(self.layers[k])
        only[start, end] = True
        return replace(self, layers=(*self.layers[:k], only, *self.layers[k + 1 :]))

    def with_hosts(self, k: int, hosts: Hosts) -> "Stages":
        """These hosts of stage k."""
        return replace(self, hosts=(*self.hosts[:k], hosts, *self.hosts[k + 1 :]))


@dataclass(frozen=True)
class _Tail:
    """What follows the last backward of a stage: sync, finish [n, n], embedding on both ends."""

    sync: Array
    finish: Array
    embedding: tuple[int, int]


class Lane:
    """Any lane of a shape. J kinds, the first of them the fastest."""

    def __init__(self, intervals: Intervals, placer: Placer) -> None:
        self.intervals, self.placer, self.tables = intervals, placer, intervals.tables
        shape, sizes = self.tables.shape, self.tables.slots_per_node
        self.width = lane_width(self.tables)
        self.number = shape.dp // self.width
        used = [j for j, count in enumerate(shape.nodes_used) if count]
        zones = self.tables.instance.cluster.zone_link is not None
        each = [n * size // self.width for n, size in zip(shape.nodes_used, sizes, strict=True)]
        self._take(kinds_of(intervals, 0.0), each)
        while len(self.kinds) > 2 and self.num_edges > MOST_EDGES:
            *others, one, other = self.kinds
            self._take([*others, one + other], each)
        whole = all(sizes[j] == self.width for j in used)
        self.exact = whole and not zones and len(self.kinds) == len(used)
        self.costs = [cheapest([least_costs(placer, j) for j in kind]) for kind in self.kinds]
        self._send_ns = least_sends(self.costs)
        self._rows: dict[Counts, list[list[Row]]] = {}
        self._tails: dict[tuple[int, ...], _Tail] = {}
        self._fitting: dict[tuple[int, int, int], Mask] = {}

    def _take(self, kinds: list[Kind], each: Sequence[int]) -> None:
        """These kinds; each: places by node group."""
        self.kinds = kinds
        self.places = tuple(sum(each[j] for j in kind) for kind in kinds)

    @cached_property
    def forward(self) -> Array:
        """[J, n, n] ns."""
        return least_of(self.intervals.forward, self.kinds)

    @cached_property
    def backward(self) -> Array:
        """[J, n, n] ns."""
        return least_of(passes(self.intervals)[0], self.kinds)

    @cached_property
    def weight(self) -> Array | None:
        """[J, n, n] ns of weight gradients, where the schedule splits them from the backward."""
        weight = passes(self.intervals)[1]
        return None if weight is None else least_of(weight, self.kinds)

    @cached_property
    def room(self) -> Array:
        """[J, n, n] micro-batches in flight that have room."""
        return -least_of(-self.intervals.room, self.kinds)

    def counts(self) -> Iterator[Counts]:
        """All ways to divide the places of one lane among the kinds."""

        def rest(left: int, places: Sequence[int]) -> Iterator[Counts]:
            if len(places) == 1:
                if left <= places[0]:
                    yield (left,)
                return
            for count in range(min(left, places[0]) + 1):
                yield from ((count, *more) for more in rest(left - count, places[1:]))

        yield from rest(self.tables.shape.pp, self.places)

    @property
    def num_edges(self) -> int:
        """About how many edges the ways on all counts have.

        Those of a lane with the counts of the mean lane, times the ways to divide its places; runs
        of layers are taken to be up to twice as long as they would be if all stages were alike.
        """
        p, size = self.tables.shape.pp, self.tables.num_layers
        states = prod(min(p, n // self.number) + 1 for n in self.places[:-1]) * len(self.kinds)
        return sum(1 for _ in self.counts()) * p * states * size * min(size, 2 * size // p)

    @cached_property
    def _speeds(self) -> Numbers:
        """[J] what one ns of a slot is worth in micro-batches of a replica: see `most`."""
        work = self.forward + self.backward
        layers = np.arange(work.shape[-1] - 1)
        each = work[:, layers, layers + 1]
        whole = np.maximum(each.sum(axis=1), 1)
        least = float((each / whole[:, None]).min(axis=0).sum())
        speeds: Numbers = 1 / (whole * max(least, MARGIN))
        return speeds

    def most(self, counts: Counts, cutoff: int) -> int:
        """The most micro-batches of a lane with these counts below the cutoff, by its work.

        Proof. A slot of kind j is busy for m t below the cutoff, t the time of one micro-batch.
        With W_j the time of all layers on kind j, add up m t / W_j over the slots of a replica:
        each layer x adds m times the least of t_xj / W_j at least.
        """
        return int((cutoff - 1) * float(np.array(counts) @ self._speeds) * (1 + MARGIN))

    def least_ns(self, total: int) -> int:
        """A step time that no plan is below whose lanes have `total` micro-batches, by `most`."""
        return int(total / float(np.array(self.places) @ self._speeds) * (1 - MARGIN))

    def everything(self) -> Stages:
        """All layers on all stages, hosts undecided."""
        pp = self.tables.shape.pp
        return Stages((self.intervals.allowed,) * pp, (None,) * pp)

    def _fits(self, k: int, kind: int, share: int) -> Mask:
        """[n, n] layers that some node of the kind may have on stage k."""
        key = k, kind, share
        if key not in self._fitting:
            self._fitting[key] = allowed_on(self.intervals, k, self.kinds[kind], share)
        return self._fitting[key]

    def _steps(self, counts: Counts) -> list[list[Row]]:
        """Rows of every stage of a lane with exactly these counts."""
        if counts not in self._rows:
            states: dict[tuple[int, Counts], int] = {(0, counts): 0}
            stages = []
            for _ in range(self.tables.shape.pp):
                found: dict[tuple[int, Counts], int] = {}
                rows = []
                for (before, left), index in states.items():
                    for now in (j for j, count in enumerate(left) if count):
                        after = (*left[:now], left[now] - 1, *left[now + 1 :])
                        target = found.setdefault((now, after), len(found))
                        rows.append((index, target, before, now))
                stages.append(rows)
                states = found
            self._rows[counts] = stages
        return self._rows[counts]

    def problem(self, counts: Counts, stages: Stages, share: int = 1) -> SplitProblem:
        """One replica of a lane with these counts and micro-batches."""
        tables = self.tables
        arcs = tuple(
            self._arcs(k, np.array(rows), layers, hosts, share)
            for k, (rows, layers, hosts) in enumerate(
                zip(self._steps(counts), stages.layers, stages.hosts, strict=True)
            )
        )
        tails = self._tails.values()
        return SplitProblem(
            schedule=tables.shape.schedule,
            blocking=tables.instance.search.blocking_sends,
            tied=tables.embedding_bytes > 0,
            stages=arcs,
            micro_batches=(share,),
            forward=self.forward,
            backward=self.backward,
            weight=self.weight,
            sync=np.stack([tail.sync for tail in tails]),
            finish=np.stack([tail.finish for tail in tails]),
        )

    def _arcs(self, k: int, rows: Array, layers: Mask, hosts: Hosts, share: int) -> Arcs:
        source, target, before, now = rows.T
        kinds = range(len(self.kinds))
        masks = [layers & self._fits(k, j, share) & (hosts is None or j in hosts) for j in kinds]
        tails = [self._tail(hosts or (j,)) for j in kinds]
        known = list(self._tails)
        send = self._send_ns[before, now][:, None] * (k > 0)
        last = k == self.tables.shape.pp - 1
        return Arcs(
            source=source,
            target=target,
            column=now[:, None],
            send=send,
            send_back=send,
            tail=np.array([known.index(hosts or (j,)) for j in kinds])[now],
            embedding=np.array([tail.embedding[last] for tail in tails])[now],
            allowed=tuple(masks[j] for j in now.tolist()),
            begins=tuple((j,) for j in now.tolist()),
        )

    def _tail(self, hosts: tuple[int, ...]) -> _Tail:
        if hosts not in self._tails:
            self._tails[hosts] = self._exact_tail(hosts) if self.exact else self._least_tail(*hosts)
        return self._tails[hosts]

    def _least_tail(self, kind: int) -> _Tail:
        """Of a stage with a node of the kind."""
        one = self.costs[kind]
        optimizer = self.intervals.optimizer[list(self.kinds[kind])].min(axis=0)
        return _Tail(
            one.sync_matrix,
            optimizer + one.gather_matrix,
            one.embedding,
        )

    def _exact_tail(self, hosts: tuple[int, ...]) -> _Tail:
        """Of a stage on these kinds, nodes of each; of them all, if they are more than lanes."""
        groups = [self.kinds[j][0] for j in hosts]
        groups += groups[:1] * (self.number - len(groups))
        nodes = [self.placer.terms(j, 0) for j in groups]
        sync, latency, gather, gather_latency = self.placer.stage(0, nodes, groups)
        ends = 0, (self.tables.shape.pp - 1) * self.tables.shape.dp
        first, last = (max(self.placer.terms(j, end).embedding_ns for j in groups) for end in ends)
        return _Tail(
            interval_sums(sync) + latency,
            finish_ns(self.intervals, groups, gather, gather_latency),
            (first, last),
        )
