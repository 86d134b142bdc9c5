"""The ways of one lane on given numbers of nodes, whatever the node order.

Lanes are the replicas in blocks of q = `lane_width`, which no node border parts: on every stage a
lane stands on one node. So a node of c slots is c / q places, each for one stage of one lane, and a
lane of p stages takes p places. Where every node used is one place, and no link joins zones, any
dealing of the places to stages and lanes is a node order: the ways here are `exact` if all messages
are equally long, as the least one stands for all. Where no stage spans zones, `split`, each lane
has as many places in a zone as stages lie there.

Kinds are node groups; several of them together cost what their nodes cost at least. The tail of a
stage depends on all nodes of the stage. A lane knows only its own, which gives a lower bound,
unless it is decided on which kinds the stage stands.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import Placer
from solver.bounds.kind_automaton import Places, Step, steps
from solver.bounds.kind_graph import KindGraph, Tail
from solver.bounds.kinds import allowed_on, least_of
from solver.bounds.lane_places import Counts, LanePlaces
from solver.layered.placements import finish_ns
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem

#: More than float noise, relative.
MARGIN = 1e-9

Numbers = NDArray[np.float64]
Hosts = tuple[int, ...] | None  #: the kinds that a stage stands on; None while undecided


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


class Lane:
    """Any lane of a shape whose places are dealt out as `places` says; J kinds."""

    def __init__(
        self, intervals: Intervals, placer: Placer, places: LanePlaces, split: bool
    ) -> None:
        self.intervals, self.placer, self.places = intervals, placer, places
        self.tables, self.kinds = intervals.tables, places.kinds
        flows = self.tables.shape.dp if split else places.width
        self.costs = KindGraph(intervals, placer, self.kinds, flows)
        self._steps: dict[Counts, list[list[Step]]] = {}
        self._tails: dict[tuple[int, ...], Tail] = {}
        self._fitting: dict[tuple[int, int, int], Mask] = {}

    @cached_property
    def exact(self) -> bool:
        """Whether the ways are node orders, with their own costs."""
        shape, sizes = self.tables.shape, self.tables.slots_per_node
        used = [j for j, count in enumerate(shape.nodes_used) if count]
        whole = all(sizes[j] == self.places.width for j in used)
        alike = len(self.tables.tensors) == 1 and len(self.kinds) == len(used)
        return whole and alike and not self.tables.instance.cluster.has_zones

    @cached_property
    def room(self) -> Array:
        """[J, n, n] micro-batches in flight that have room."""
        return -least_of(-self.intervals.room, self.kinds)

    @cached_property
    def _speeds(self) -> Numbers:
        """[J] what one ns of a slot is worth in micro-batches of a replica: see `most`."""
        work = self.costs.work
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
        return int(total / float(np.array(self.places.there) @ self._speeds) * (1 - MARGIN))

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

    def _steps_of(self, counts: Counts) -> list[list[Step]]:
        """Steps of a lane with exactly these counts."""
        if counts not in self._steps:
            kinds = dict.fromkeys(range(len(self.kinds)), 1)
            self._steps[counts] = steps([kinds] * self.tables.shape.pp, Places(counts)) or []
        return self._steps[counts]

    def problem(self, counts: Counts, stages: Stages, share: int = 1) -> SplitProblem:
        """One replica of a lane with these counts and micro-batches."""
        arcs = [
            self._arcs(k, own, layers, hosts, share)
            for k, (own, layers, hosts) in enumerate(
                zip(self._steps_of(counts), stages.layers, stages.hosts, strict=True)
            )
        ]
        return self.costs.problem(arcs, list(self._tails.values()), share)

    def _arcs(self, k: int, own: list[Step], layers: Mask, hosts: Hosts, share: int) -> Arcs:
        kinds = range(len(self.kinds))
        masks = [layers & self._fits(k, j, share) & (hosts is None or j in hosts) for j in kinds]
        rows = np.array([self._tail(hosts or (j,)) for j in kinds])
        tails = list(self._tails.values())
        return self.costs.arcs(k, own, [masks[one.now] for one in own], rows, tails, share)

    def _tail(self, hosts: tuple[int, ...]) -> int:
        """Row of the tail of a stage on these kinds."""
        if hosts not in self._tails:
            least = self.costs.tails[hosts[0]]
            self._tails[hosts] = self._exact_tail(hosts) if self.exact else least
        return list(self._tails).index(hosts)

    def _exact_tail(self, hosts: tuple[int, ...]) -> Tail:
        """Of a stage on these kinds, nodes of each; of them all, if they are more than lanes."""
        groups = [self.kinds[j][0] for j in hosts]
        groups += groups[:1] * (self.places.number - len(groups))
        nodes = [self.placer.terms(j, 0) for j in groups]
        sync, latency, gather, gather_latency = self.placer.stage(0, nodes, groups)
        ends = 0, (self.tables.shape.pp - 1) * self.tables.shape.dp
        first, last = (max(self.placer.terms(j, end).embedding_ns for j in groups) for end in ends)
        return Tail(
            interval_sums(sync) + latency,
            finish_ns(self.intervals, groups, gather, gather_latency),
            (first, last),
        )
