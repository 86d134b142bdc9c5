"""The graph of the ways of one lane, whatever the node order; see `lanes`."""

import sys
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_sums
from formulations.costs.tables import CostTables
from solver.verify.least_costs import LeastCosts
from solver.verify.orders import OrderGraph, Spot, Tally, Used
from solver.verify.zone_links import zone_slots

Array = NDArray[np.int64]
Hosts = tuple[tuple[int, ...] | None, ...]  #: per stage the groups it stands on; None: undecided


class LaneGraph(OrderGraph):
    """The ways of a lane that weighs from `least` to the most of a tally.

    On stages whose hosts are decided only on these; elsewhere all nodes of a stage are taken to be
    like its own.
    """

    def __init__(
        self, tables: CostTables, tally: Tally, least: Used, hosts: Hosts, apart: bool
    ) -> None:
        super().__init__(tables, tally, apart)
        self.hosts, self.least, self.number = hosts, least, self.shape.dp // self.width
        self.lanes = range(1)
        sizes = {self.sizes[j] for j in tables.used}
        self.unlike = self.number > 1 and sizes != {self.width}
        if apart:
            self._count_zones()
        weights = [self.tally.weights[j] for j in tables.used]
        self.lightest, self.heaviest = (tuple(map(f, *weights, weights[0])) for f in (min, max))

    def _count_zones(self) -> None:
        """Weighs the stages in every zone too: every lane has as many there as all stages."""
        groups, shape = self.instance.cluster.groups, self.shape
        zones = zone_slots(self.tables)
        stages = [size // shape.dp if self.number == 1 else 1 for size in self.sizes]
        weights = [
            (*own, *(count * (group.zone == zone) for zone in zones))
            for own, count, group in zip(self.tally.weights, stages, groups, strict=True)
        ]
        whole = tuple(slots // shape.dp for slots in zones.values())
        self.tally = Tally(tuple(weights), (*self.tally.most, *whole))
        self.least = (*self.least, *whole)

    @property
    def most_steps(self) -> int:
        """Any number: they are few for one lane."""
        return sys.maxsize

    def _placed(
        self, k: int, used: Used, before: tuple[Spot, ...]
    ) -> Iterator[tuple[Used, tuple[Spot, ...]]]:
        if self.number == 1:
            yield from super()._placed(k, used, before)
            return
        first, left = k * self.shape.dp, self.shape.pp - 1 - k
        for j, more in self._nodes(used):
            limits = zip(
                more, self.lightest, self.heaviest, self.least, self.tally.most, strict=True
            )
            if j in (self.hosts[k] or (j,)) and all(
                n + left * light <= most and n + left * heavy >= least
                for n, light, heavy, least, most in limits
            ):
                yield more, (Spot(j, range(first, first + self.width)),)

    def _send_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        sends = super()._send_ns(k, source, target, crossing)
        together = self.sizes[source.group] >= self.shape.dp + self.width
        if not (self.unlike and together and source.group == target.group):
            return sends
        return list(map(min, sends, super()._send_ns(k, source, source, 0)))

    @cached_property
    def _least_tails(self) -> dict[int, Array]:
        """By group used [n, n] tails with a node of it at least."""
        costs, runs = LeastCosts(self.instance, self.shape), self.instance.workload.layer_runs
        layers, start = costs.tail_ns()
        each = np.repeat(layers, [run.count for run in runs], axis=0)
        rows = zip(costs.used, each.T, strict=True)
        return {j: interval_sums(own) + start for j, own in rows}

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        if self.number == 1:
            return super()._tail_row(k, spots)
        (own,) = spots
        if self.unlike:
            return self.epilogues.row_of(own.group, self._least_tails[own.group])
        others = [Spot(j, own.slots) for j in self.hosts[k] or ()]
        return super()._tail_row(k, (*others, *spots * (self.number - len(others))))
