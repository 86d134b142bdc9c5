"""Shapes with many node orders, lane by lane.

Nodes of q slots each, q a divisor of dp: every node runs one stage of one lane, q replicas that are
always together. Any way to deal the nodes to stages and lanes is a node order, so orders need not
be told apart, however many there are. A stage's tail is no shorter than if all its nodes were like
that of the lane. Or all nodes hold whole stages: then all replicas are one lane.

Nodes of other sizes are places of q slots each, q the greatest divisor of dp and all sizes: borders
of nodes and stages lie at its multiples, so no lane is parted. Every node order deals the places
to stages and lanes, though not every dealing is one; tails are those of `least_costs`, and two
stages of a lane may be on one node only if both fit there. So lanes are a relaxation, not tried.

Light lane. Let a node of group j weigh w_j, all nodes W, and the lanes do s_l micro-batches per
replica, all together S or more. Some lane l of weight w has s_l W >= S w: with even shares it
weighs W / lanes or less. Below the claim that lane is a way through the graph of one lane in which
weights are added up, so if nothing is left of these (`refutation`), for any weights, there is no
plan. All lanes have the same layers on a stage: what the light lane cannot have there, whatever its
node, no lane has. What no lane can have on a node of some group is left out for all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.dealing import Dealing, LightLane, Nodes, deal
from solver.verify.lane_graph import Hosts, LaneGraph
from solver.verify.orders import Tally, Used, exact_tally
from solver.verify.refutation import Allowed, Refutation
from solver.verify.stages import Stages
from solver.verify.ways import Left
from solver.verify.zone_links import keeps_stages_apart

Mask = NDArray[np.bool_]

#: With more kinds of lanes these are not dealt out.
MOST_KINDS = 48


@dataclass(frozen=True)
class LanesLeft:
    """What plans below the claim may use: per stage layers by group, and hosts where decided.

    most: micro-batches of a lane by its nodes, where known.
    """

    allowed: Allowed
    hosts: Hosts
    most: Mapping[Nodes, int] = field(default_factory=dict)

    @property
    def runs(self) -> list[Mask]:
        """Per stage [n, n] layers, whatever the group."""
        return [np.asarray(own.any(axis=0)) for own in self.allowed]

    def with_runs(self, k: int, runs: Mask) -> "LanesLeft":
        """With these layers only on stage k."""
        allowed = [*self.allowed[:k], self.allowed[k] & runs, *self.allowed[k + 1 :]]
        return replace(self, allowed=allowed)

    def with_ways(self, ways: Iterable[Left]) -> "LanesLeft | None":
        """With the layers of these ways of a lane only; None if there are none."""
        left, runs = self, [np.zeros_like(own) for own in self.runs]
        for found in ways:
            for run, own in zip(runs, found, strict=True):
                run[own.first, own.last] = True
        for k, run in enumerate(runs):
            left = left.with_runs(k, run)
        return left if all(run.any() for run in runs) else None


class Lanes:
    """The question whether any plan of one shape has a step below this."""

    def __init__(
        self, prover: Prover, shape: Shape, below_ns: int, clock: Clock | None = None
    ) -> None:
        self.prover, self.shape, self.clock = prover, shape, clock or Clock()
        self.below_ns = below_ns
        self.apart = keeps_stages_apart(prover, shape, below_ns)
        self.tables = prover.tables(shape)
        sizes = self.tables.slots_per_node
        used = {sizes[j] for j in self.tables.used}
        self.size = gcd(shape.dp, *used)
        self.number = shape.dp // self.size
        self.alike = self.number == 1 or used == {self.size}
        self.places = shape.nodes_used
        if self.number > 1:
            each = zip(sizes, shape.nodes_used, strict=True)
            self.places = tuple(n * size // self.size for size, n in each)
        total = prover.instance.workload.global_batch // shape.micro_batch
        self.even = prover.instance.search.micro_batches == "even"
        self.fewest = total // shape.dp if self.even else 1
        self.total = ceil_div(total, self.size)
        self.largest = self.fewest if self.even else min(self.total, total - shape.dp + 1)
        self.dealing = Dealing(
            self.places, self.number, shape.pp, self.total, self.largest, self.work
        )
        least = self.fewest if self.even else None
        self.light = LightLane(self.dealing, shape.nodes_used, least)
        self._questions: dict[tuple[Tally, Used, int, Hosts], Refutation] = {}

    def everything(self) -> LanesLeft | None:
        """What plans below the claim may use; None if there are none."""
        hosts: Hosts = (None,) * self.shape.pp
        none = Tally(((),) * len(self.shape.nodes_used), ())
        question = self._question(none, (), self.fewest, hosts)
        left = question.everything(self.below_ns)
        if not all(map(len, left)):
            return None
        return self.remaining(LanesLeft(question.allowed(left), hosts))

    def remaining(self, left: LanesLeft) -> LanesLeft | None:
        """What of this plans below the claim may use; None if there are none."""
        known, weightings = self._by_all(left), self.light.weightings
        by_deal = not self.even and self.number > 1 and self.dealing.few
        by_deal = by_deal and len(self.dealing.kinds) <= MOST_KINDS
        for weights in weightings[:1] if by_deal else weightings:
            if known is not None:
                known = self._by_light(known, weights)
        return self._by_deal(known) if by_deal and known is not None else known

    @cached_property
    def work(self) -> list[int]:
        """Of the whole chain for a micro-batch on every group, ns; 1 at least."""
        forward, backward, weight = self.prover.stage_times(self.shape)
        work: list[int] = np.maximum((forward + backward + weight)[:, 0, -1], 1).tolist()
        return work

    def _by_all(self, left: LanesLeft) -> LanesLeft | None:
        """Without what no lane can use, whatever it weighs."""
        none = Tally(((),) * len(self.shape.nodes_used), ())
        question = self._question(none, (), self.fewest, left.hosts)
        found = self.within(question, left)
        return None if found is None else replace(left, allowed=question.allowed(found))

    def _by_deal(self, left: LanesLeft) -> LanesLeft | None:
        """Without what lanes that do enough cannot use, if the others do the most that they can.

        A lane on nodes n does no more than some most, so the lanes do no more than the best deal of
        all nodes, and a lane no less than what the best deal of the others leaves.
        """
        most = self.dealing.most_by_nodes(
            lambda nodes, at: self._ways_of(left, nodes, at) is not None, left.most
        )
        if most is None:
            return None
        left = replace(left, most=most)
        some = {nodes: own for nodes, own in most.items() if own}
        others = deal(some, self.number - 1, self.places)[-1]
        known = []
        for nodes, own in most.items():
            rest = tuple(n - c for n, c in zip(self.places[:-1], nodes, strict=False))
            least = max(1, self.total - int(others[rest]))
            if least <= own and (found := self._ways_of(left, nodes, least)):
                known.append(found)
        return left.with_ways(known)

    def _ways_of(self, left: LanesLeft, nodes: Nodes, micro_batches: int) -> Left | None:
        """What a lane with these nodes may use to do so much; None if it cannot."""
        question = self._question(exact_tally(nodes), nodes, 1, left.hosts)
        return self.within(replace(question, needed=micro_batches), left)

    def _by_light(self, left: LanesLeft, weights: Nodes) -> LanesLeft | None:
        """Without what the light lane leaves no lane; None if there is no light lane."""
        return left.with_ways(found for _, found in self.light_ways(left, weights))

    def light_ways(self, left: LanesLeft, weights: Nodes) -> Iterator[tuple[Refutation, Left]]:
        """What the light lane may use, by its weight."""
        tally_of = tuple((w,) for w in weights)
        for least, most, micro_batches in self.light.ranges(weights):
            if micro_batches > self.largest:
                continue
            question = self._question(Tally(tally_of, (most,)), (least,), micro_batches, left.hosts)
            found = self.within(question, left)
            if found is not None:
                yield question, found

    def within(self, question: Refutation, left: LanesLeft) -> Left | None:
        """What of this ways of a lane below the claim may use; None if there are none."""
        everything = question.everything(self.below_ns, left.allowed)
        return question.remaining(everything, self.below_ns)

    def _question(self, tally: Tally, least: Used, micro_batches: int, hosts: Hosts) -> Refutation:
        key = tally, least, micro_batches, hosts
        if key not in self._questions:
            graph = LaneGraph(self.tables, tally, least, hosts, self.apart)
            stages = Stages(self.prover, self.shape, graph)
            self._questions[key] = Refutation(stages, micro_batches, self.clock)
        return self._questions[key]

    def exact(self, hosts: Hosts) -> Refutation:
        """All lanes, by their nodes."""
        tally = exact_tally(self.shape.nodes_used)
        none = (0,) * len(self.shape.nodes_used)
        return self._question(tally, none, self.fewest, hosts)
