"""Shapes with many node orders, lane by lane.

Nodes of q slots each, q a divisor of dp: every node runs one stage of one lane, q replicas that are
always together. Any way to deal the nodes to stages and lanes is a node order, so orders need not
be told apart, however many there are. A stage's tail is no shorter than if all its nodes were like
that of the lane. Or all nodes hold whole stages: then all replicas are one lane.

Light lane. Let a node of group j weigh w_j, all nodes W, and the lanes do s_l micro-batches per
replica, all together S or more. Some lane l of weight w has s_l W >= S w: with even shares it
weighs W / lanes or less. Below the claim that lane is a way through the graph of one lane in which
weights are added up, so if nothing is left of these (`refutation`), for any weights, there is no
plan. All lanes have the same layers on a stage: what the light lane cannot have there, whatever its
node, no lane has. What no lane can have on a node of some group is left out for all.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.exhaust import Trial
from solver.verify.orders import OrderGraph, Spot, Tally, Used, exact_tally
from solver.verify.refutation import MOST_CUTS, Allowed, Cut, Left, Refutation

Mask = NDArray[np.bool_]
Nodes = tuple[int, ...]  #: nodes by group
Hosts = tuple[tuple[int, ...] | None, ...]  #: per stage the groups it stands on; None: undecided

#: Weight of the fastest group where weights are like speeds, and ranges of weight of a light lane.
FINEST = 24
RANGES = 8
#: With more ways of a lane through one split they are not tried.
MOST_PATHS = 50_000
#: With more ways to have dealt some of the nodes, or kinds of lanes, these are not dealt out.
MOST_DEALT = 2000
MOST_KINDS = 24


class LaneGraph(OrderGraph):
    """The ways of a lane that weighs from `least` to the most of a tally.

    On stages whose hosts are decided only on these; elsewhere all nodes of a stage are taken to be
    like its own.
    """

    def __init__(
        self, instance: Instance, shape: Shape, tally: Tally, least: Used, hosts: Hosts
    ) -> None:
        super().__init__(instance, shape, tally)
        self.hosts, self.least, self.number = hosts, least, shape.dp // self.width
        self.lanes = range(1)
        own = [w for w, n in zip(tally.weights, shape.nodes_used, strict=True) if n]
        self.lightest, self.heaviest = (tuple(map(one, *own, own[0])) for one in (min, max))

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

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        if self.number == 1:
            return super()._tail_row(k, spots)
        (own,) = spots
        others = [Spot(j, own.slots) for j in self.hosts[k] or ()]
        return super()._tail_row(k, (*others, *spots * (self.number - len(others))))


def deal(most: Mapping[Nodes, int], lanes: int) -> list[dict[Nodes, int]]:
    """B_0, B_1, ..: most micro-batches by the nodes that so many lanes take."""
    found: list[dict[Nodes, int]] = [{(0,) * len(next(iter(most), ())): 0}]
    for _ in range(lanes):
        sums: dict[Nodes, int] = {}
        for taken, done in found[-1].items():
            for nodes, own in most.items():
                both = tuple(map(sum, zip(taken, nodes, strict=True)))
                sums[both] = max(sums.get(both, 0), done + own)
        found.append(sums)
    return found


def lane_nodes(left: int, available: Nodes) -> Iterator[Nodes]:
    """All choices of `left` nodes."""
    if not available:
        yield from [()] if left == 0 else []
        return
    for count in range(min(left, available[0]) + 1):
        yield from ((count, *rest) for rest in lane_nodes(left - count, available[1:]))


@dataclass(frozen=True)
class LanesLeft:
    """What plans below the claim may use: per stage layers by group, and hosts where decided."""

    allowed: Allowed
    hosts: Hosts

    @property
    def runs(self) -> list[Mask]:
        """Per stage [n, n] layers, whatever the group."""
        return [np.asarray(own.any(axis=0)) for own in self.allowed]

    def with_runs(self, k: int, runs: Mask) -> "LanesLeft":
        """With these layers only on stage k."""
        allowed = [*self.allowed[:k], self.allowed[k] & runs, *self.allowed[k + 1 :]]
        return LanesLeft(allowed, self.hosts)


class Lanes:
    """The question for one shape."""

    def __init__(self, prover: Prover, shape: Shape, clock: Clock | None = None) -> None:
        self.prover, self.shape, self.clock = prover, shape, clock or Clock()
        groups = prover.instance.cluster.groups
        sizes = {
            g.gpus_per_node // shape.tp for g, n in zip(groups, shape.nodes_used, strict=True) if n
        }
        self.size = min(shape.dp, *sizes)
        self.alike = sizes == {self.size} and shape.dp % self.size == 0
        self.alike |= not any(size % shape.dp for size in sizes)
        self.number = shape.dp // self.size
        total = prover.instance.workload.global_batch // shape.micro_batch
        self.even = prover.instance.search.micro_batches == "even"
        self.fewest = total // shape.dp if self.even else 1
        self.total = ceil_div(total, self.size)
        self.largest = self.fewest if self.even else min(self.total, total - shape.dp + 1)
        self._cuts: deque[Cut] = deque(maxlen=MOST_CUTS)
        self._questions: dict[tuple[Tally, Used, int, Hosts], Refutation] = {}

    @property
    def possible(self) -> bool:
        """Whether the argument holds for the shape."""
        known = self.even or SCHEDULES[self.shape.schedule].prefixes
        return self.alike and known and self.shape.vpp == 1

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        return self.possible and self.everything(below_ns) is None

    def everything(self, below_ns: int) -> LanesLeft | None:
        """What plans below the claim may use; None if there are none."""
        hosts: Hosts = (None,) * self.shape.pp
        none = Tally(((),) * len(self.shape.nodes_used), ())
        question = self._question(none, (), self.fewest, hosts)
        left = question.everything(below_ns)
        if not all(map(len, left)):
            return None
        return self.remaining(LanesLeft(question.allowed(left), hosts), below_ns)

    def remaining(self, left: LanesLeft, below_ns: int) -> LanesLeft | None:
        """What plans with a step time below this may use; None if there are none."""
        known: LanesLeft | None = self._by_all(left, below_ns)
        if not self.even and self.number > 1 and self.few and len(self.kinds) <= MOST_KINDS:
            return None if known is None else self._by_deal(known, below_ns)
        for weights in self._weightings:
            if known is None:
                return None
            known = self._by_light(known, weights, below_ns)
        return known

    @property
    def _weightings(self) -> list[Nodes]:
        """Weights to try: of the fastest group alone, of more and more, and like the speeds."""
        used = [j for j, n in enumerate(self.shape.nodes_used) if n]
        if len(used) == 1:
            return []
        forward, backward, weight = self.prover.stage_times(self.shape)
        work = (forward + backward + weight)[:, 0, -1]
        order = sorted(used, key=lambda j: work[j])
        rank = [order.index(j) if j in used else len(used) for j in range(len(work))]
        least = max(1, min(int(work[j]) for j in used))
        found = [
            [int(one == 0) for one in rank],
            [len(used) - one if one < len(used) - 1 else 0 for one in rank],
            [FINEST * least // max(1, int(one)) for one in work],
        ]
        if not self.even:
            found.reverse()
        return list(dict.fromkeys(map(tuple, found)))

    def _by_all(self, left: LanesLeft, below_ns: int) -> LanesLeft | None:
        """Without what no lane can use, whatever it weighs."""
        none = Tally(((),) * len(self.shape.nodes_used), ())
        question = self._question(none, (), self.fewest, left.hosts)
        found = question.remaining(question.everything(below_ns, left.allowed), below_ns)
        return None if found is None else LanesLeft(question.allowed(found), left.hosts)

    @cached_property
    def kinds(self) -> list[Nodes]:
        """All nodes that a lane may have."""
        return list(lane_nodes(self.shape.pp, self.shape.nodes_used))

    @property
    def few(self) -> bool:
        """Whether nodes can be dealt out in few enough ways."""
        used = self.shape.nodes_used
        return prod(n + 1 for n in used) // (max(used) + 1) <= MOST_DEALT

    def _by_deal(self, left: LanesLeft, below_ns: int) -> LanesLeft | None:
        """Without what lanes that do enough cannot use, if the others do the most that they can.

        A lane on nodes n does no more than some most, so the lanes do no more than the best deal of
        all nodes, and a lane no less than what the best deal of the others leaves.
        """
        most = {nodes: self._most(left, nodes, below_ns) for nodes in self.kinds}
        others = deal({nodes: own for nodes, own in most.items() if own}, self.number - 1)[-1]
        runs = [np.zeros_like(self.prover.enough_blocks) for _ in left.allowed]
        for nodes, own in most.items():
            rest = tuple(n - c for n, c in zip(self.shape.nodes_used, nodes, strict=True))
            least = max(1, self.total - others.get(rest, -self.total))
            if least <= own and (found := self._ways_of(left, nodes, least, below_ns)):
                for run, ways in zip(runs, found, strict=True):
                    run[ways.first, ways.last] = True
        for k, run in enumerate(runs):
            left = left.with_runs(k, run)
        return left if all(run.any() for run in runs) else None

    def _most(self, left: LanesLeft, nodes: Nodes, below_ns: int) -> int:
        """Most micro-batches of a lane with these nodes, by halving."""
        low, high = 0, self.largest
        while low < high:
            middle = (low + high + 1) // 2
            found = self._ways_of(left, nodes, middle, below_ns)
            low, high = (middle, high) if found else (low, middle - 1)
        return low

    def _ways_of(
        self, left: LanesLeft, nodes: Nodes, micro_batches: int, below_ns: int
    ) -> Left | None:
        """What a lane with these nodes may use to do so much; None if it cannot."""
        question = self._question(exact_tally(nodes), nodes, 1, left.hosts)
        if not all(len(step.source) for step in question.steps):
            return None
        asked = question.with_needed(micro_batches)
        return asked.remaining(asked.everything(below_ns, left.allowed), below_ns)

    def _by_light(self, left: LanesLeft, weights: Nodes, below_ns: int) -> LanesLeft | None:
        """Without what the light lane leaves no lane; None if there is no light lane."""
        runs = [np.zeros_like(self.prover.enough_blocks) for _ in left.allowed]
        for _, found in self._light_ways(left, weights, below_ns):
            for run, own in zip(runs, found, strict=True):
                run[own.first, own.last] = True
        for k, run in enumerate(runs):
            left = left.with_runs(k, run)
        return left if all(run.any() for run in runs) else None

    def _light_ways(
        self, left: LanesLeft, weights: Nodes, below_ns: int
    ) -> Iterator[tuple[Refutation, Left]]:
        """What the light lane may use, by its weight."""
        tally_of = tuple((w,) for w in weights)
        for least, most, micro_batches in self._light(weights):
            if micro_batches > self.largest:
                continue
            question = self._question(Tally(tally_of, (most,)), (least,), micro_batches, left.hosts)
            if not all(len(step.source) for step in question.steps):
                continue
            found = question.remaining(question.everything(below_ns, left.allowed), below_ns)
            if found is not None:
                yield question, found

    def has_light_way(self, left: LanesLeft, below_ns: int) -> bool:
        """Whether the light lane has a way in time, by simulation, whatever the weights.

        True where there are too many ways to try.
        """
        for weights in self._weightings:
            for question, found in self._light_ways(left, weights, below_ns):
                trial = Trial(question, below_ns)
                if trial.count(found) > MOST_PATHS:
                    break
                if max(self.most_of_ways(trial, found), default=0) >= question.needed:
                    break
            else:
                return False
        return True

    def most_of_ways(self, trial: Trial, ways: Left) -> list[int]:
        """Of every complete way the most micro-batches below the claim."""
        plans = trial.plans(ways)
        high = np.full(len(plans), self.largest)
        for k, own in enumerate(trial.refutation.most(ways, 0, trial.below_ns - 1)):
            np.minimum(high, own[plans.choices[:, k]], out=high)
        low = np.zeros_like(high)
        while (low < high).any():
            self.clock.check()
            middle = (low + high + 1) // 2 if not self.even else high
            for m in np.unique(middle[low < high]).tolist():
                rows = np.flatnonzero((middle == m) & (low < high))
                slow = trial.times(plans, rows, 0, m) >= trial.below_ns
                high[rows[slow]], low[rows[~slow]] = (0 if self.even else m - 1), m
        most: list[int] = low.tolist()
        return most

    def _light(self, weights: Nodes) -> list[tuple[int, int, int]]:
        """Weights of the light lane, from and to, and its micro-batches at least."""
        nodes = self.shape.nodes_used
        whole = sum(w * n for w, n in zip(weights, nodes, strict=True))
        if self.even or self.number == 1:
            return [(0, whole // self.number, self.fewest if self.even else self.total)]
        own = [w for w, n in zip(weights, nodes, strict=True) if n]
        low, high = min(own) * self.shape.pp, max(own) * self.shape.pp
        width = max(1, ceil_div(high - low + 1, RANGES))
        return [
            (a, min(a + width - 1, high), max(1, ceil_div(self.total * a, max(1, whole))))
            for a in range(low, high + 1, width)
        ]

    def _question(self, tally: Tally, least: Used, micro_batches: int, hosts: Hosts) -> Refutation:
        key = tally, least, micro_batches, hosts
        if key not in self._questions:
            graph = LaneGraph(self.prover.instance, self.shape, tally, least, hosts)
            one = Refutation(self.prover, self.shape, graph, self.clock)
            one.cuts = self._cuts
            self._questions[key] = one.with_needed(micro_batches)
        return self._questions[key]

    def exact(self, hosts: Hosts) -> Refutation:
        """All lanes, by their nodes."""
        tally = exact_tally(self.shape.nodes_used)
        none = (0,) * len(self.shape.nodes_used)
        return self._question(tally, none, self.fewest, hosts)
