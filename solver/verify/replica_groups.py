"""Shapes with many node orders, lane by lane: what plans may use, and every plan that is left.

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

Trials. What is left is halved by the layers of a stage, until one split is left. Then the most
micro- batches of every way of a lane are found by simulation, and lanes are dealt out: B_l(n) is
the most that l lanes on nodes n do. If that is not enough, no plan with that split is faster than
claimed. If it is, that is a plan, worked out with all its costs. If it is below the claim that is
refuted. Else its tails wait for nodes of other lanes: the plans are told apart by all the groups
that one more stage stands on, which decide its tail. Where it is so for all stages, only links
between zones can be to blame, and there is no opinion.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import gcd

import numpy as np
from numpy.typing import NDArray

from formulations.costs.plan_costs import plan_costs
from formulations.plan import Plan, Shape
from formulations.schedules import SCHEDULES
from formulations.units import ceil_div
from solver.simulate import step_time_ns
from solver.verify.bounds import Clock, Prover
from solver.verify.exhaust import Outcome, Trial
from solver.verify.orders import Hosts, LaneGraph, Tally, Used, exact_tally
from solver.verify.partition import Dealing, LightLane, Nodes, best_deal, deal
from solver.verify.path_lengths import Left
from solver.verify.refutation import Allowed, Refutation
from solver.verify.stages import Stages
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


#: With more ways of a lane through one split they are not tried.
MOST_PATHS = 50_000


@dataclass(frozen=True)
class _Way:
    """The most micro-batches of a lane, and the nodes that begin with each stage, by group."""

    micro_batches: int
    begins: tuple[Nodes, ...]


def exhaust_lanes(lanes: Lanes, everything: LanesLeft) -> Outcome | None:
    """Whether any plan of the shape is below the claim; None without an opinion.

    Raises TimeUpError.
    """
    if not lanes.alike:
        return None
    stack, tried = [everything], True
    while stack:
        left = lanes.remaining(stack.pop())
        if left is None:
            continue
        if parts := _halves(left):
            stack.extend(parts)
            continue
        if not _has_light_way(lanes, left):
            continue
        if not lanes.dealing.few or (ways := _ways(lanes, left)) is None:
            return None
        if _suffice(lanes, {nodes: way.micro_batches for nodes, way in ways.items()}):
            plan, time_ns = _dealt(lanes, left, ways)
            if time_ns < lanes.below_ns:
                return Outcome(tried, plan, time_ns)
            if None not in left.hosts:
                return None
            stack.extend(_hosted(lanes, left))
    return Outcome(tried)


def _halves(left: LanesLeft) -> list[LanesLeft]:
    """The stage with most runs of layers cut in two; none if each has one."""
    runs = left.runs
    k = max(range(len(runs)), key=lambda k: int(runs[k].sum()))
    first, last = np.nonzero(runs[k])
    parts = []
    for part in (slice(None, len(first) // 2), slice(len(first) // 2, None)):
        run = np.zeros_like(runs[k])
        run[first[part], last[part]] = True
        parts.append(left.with_runs(k, run))
    return parts if len(first) > 1 else []


def _hosted(lanes: Lanes, left: LanesLeft) -> Iterator[LanesLeft]:
    """By all sets of groups that the first undecided stage may stand on."""
    k = left.hosts.index(None)
    used = [j for j, count in enumerate(lanes.shape.nodes_used) if count]
    for size in range(1, min(len(used), lanes.number) + 1):
        for groups in combinations(used, size):
            hosts = (*left.hosts[:k], groups, *left.hosts[k + 1 :])
            yield replace(left, hosts=hosts)


def _has_light_way(lanes: Lanes, left: LanesLeft) -> bool:
    """Whether the light lane has a way in time, by simulation, whatever the weights.

    True where there are too many ways to try.
    """
    return all(
        any(
            trial.count(ways) > MOST_PATHS
            or max(_most_of_ways(lanes, trial, ways), default=0) >= question.needed
            for question, ways in lanes.light_ways(left, weights)
            for trial in [Trial(question, lanes.below_ns)]
        )
        for weights in lanes.light.weightings
    )


def _most_of_ways(lanes: Lanes, trial: Trial, ways: Left) -> list[int]:
    """Of every complete way the most micro-batches below the claim, if fewer may be slower too."""
    plans = trial.plans(ways)
    high = trial.most(plans, ways, 0, np.full(len(plans), lanes.largest))
    low = np.zeros_like(high)
    grows = not lanes.even and SCHEDULES[lanes.shape.schedule].prefixes
    while (low < high).any():
        lanes.clock.check()
        middle = (low + high + 1) // 2 if grows else high
        for m in np.unique(middle[low < high]).tolist():
            rows = np.flatnonzero((middle == m) & (low < high))
            slow = trial.times.of(plans.take(rows), 0, m) >= trial.below_ns
            high[rows[slow]], low[rows[~slow]] = (0 if lanes.even else m - 1), m
    most: list[int] = low.tolist()
    return most


def _ways(lanes: Lanes, left: LanesLeft) -> dict[Nodes, _Way] | None:
    """By nodes, for lanes that have a way in time; None if there are too many to try."""
    question = lanes.exact(left.hosts)
    everything = question.everything(lanes.below_ns, left.allowed)
    ways = question.remaining(everything, lanes.below_ns)
    if ways is None:
        return {}
    trial = Trial(question, lanes.below_ns)
    if trial.count(ways) > MOST_PATHS:
        return None
    found: dict[Nodes, _Way] = {}
    rows = zip(trial.plans(ways).steps.T.tolist(), _most_of_ways(lanes, trial, ways), strict=True)
    for own, most in rows:
        begins = [step.begins[x] for step, x in zip(question.stages.graph.built, own, strict=True)]
        taken = Counter(group for groups in begins for group in groups)
        nodes = tuple(taken[j] for j in range(len(lanes.shape.nodes_used)))
        if most and (nodes not in found or found[nodes].micro_batches < most):
            found[nodes] = _Way(most, tuple(begins))
    return found


def _dealt(lanes: Lanes, left: LanesLeft, ways: dict[Nodes, _Way]) -> tuple[Plan, int]:
    """The plan of the lanes that together can do most, and its step time."""
    most = {nodes: way.micro_batches for nodes, way in ways.items()}
    chosen = best_deal(most, lanes.number, lanes.shape.nodes_used)
    rows = [ways[nodes].begins for nodes in chosen]
    order = [j for stage in zip(*rows, strict=True) for groups in stage for j in groups]
    ends = [0, *(int(np.flatnonzero(run.any(axis=0))[0]) for run in left.runs)]
    shares = [ways[nodes].micro_batches for nodes in chosen for _ in range(lanes.size)]
    total = lanes.prover.instance.workload.global_batch // lanes.shape.micro_batch
    while sum(shares) > total:
        shares[shares.index(max(shares))] -= 1
    plan = lanes.prover.plan(lanes.shape, order, ends, shares)
    return plan, step_time_ns(plan_costs(lanes.prover.instance, plan))


def _suffice(lanes: Lanes, most: Mapping[Nodes, int]) -> bool:
    """Whether lanes that do so much, by their nodes, do all."""
    dealt = deal(most, lanes.number, lanes.shape.nodes_used)[-1]
    return bool(dealt.flat[-1] >= lanes.total)
