"""Configs with many node orders, lane by lane: what plans may use, and every plan that is left.

Nodes of q slots each, q a divisor of dp: every node runs one stage of one lane, q replicas that are
always together. Any way to deal the nodes to stages and lanes is a node order, so orders need not
be told apart, however many there are. A stage's tail is no shorter than if all its nodes were like
that of the lane. Or all nodes hold whole stages: then all replicas are one lane.

Nodes of other sizes are places of q slots each, q the greatest divisor of dp and all sizes: borders
of nodes and stages lie at its multiples, so no lane is parted. Every node order deals the places
to stages and lanes, though not every dealing is one; tails are those of `LeastCosts`, and two
stages of a lane may be on one node only if both fit there. So lanes are a relaxation, not tried.

Light lane. Let a node of group j weigh w_j, all nodes W, and the lanes do s_l micro-batches per
replica, all together S or more. Some lane l of weight w has s_l W >= S w: with even shares it
weighs W / lanes or less. Below the claim that lane is a way through the graph of one lane in which
weights are added up, so if nothing is left of these (`refutation`) there is no plan. All lanes have
the same layers on a stage: what the light lane cannot have there, whatever its node, no lane has.
What no lane can have on a node of some group is left out for all.

Trials. What is left is halved by the layers of a stage, until one split is left. Then the most
micro-batches of every way of a lane are found by simulation, and lanes are dealt out: B_l(n) is
the most that l lanes on nodes n do. If that is not enough, no plan with that split is faster than
claimed. If it is, that is a plan, worked out with all its costs. If it is below the claim that is
refuted. Else its tails wait for nodes of other lanes: the plans are told apart by all the groups
that one more stage stands on, which decide its tail. Where it is so for all stages, only links
between zones can be to blame, and there is no opinion.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from math import gcd

import numpy as np

from formulations.costs.intervals import Mask
from formulations.costs.plan_costs import plan_costs
from formulations.plan import Configuration
from formulations.space.slots import limits_orders
from formulations.units import ceil_div
from solver.interrupt import Deadline
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.exhaust import Outcome, Trial
from solver.verify.orders import Hosts, LaneGraph, Tally, Used, exact_tally
from solver.verify.partition import Dealing, Nodes, best_deal, deal
from solver.verify.path_lengths import Remaining
from solver.verify.refutation import Allowed, Refutation
from solver.verify.stages import Stages

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
        return [np.asarray(mask.any(axis=0)) for mask in self.allowed]

    def with_ways(self, ways: Iterable[Remaining]) -> "LanesLeft | None":
        """With the layers of these ways of a lane only; None if there are none."""
        runs = [np.zeros_like(mask) for mask in self.runs]
        for stages in ways:
            for run, choices in zip(runs, stages, strict=True):
                run[choices.first, choices.last] = True
        allowed = [mask & run for mask, run in zip(self.allowed, runs, strict=True)]
        return replace(self, allowed=allowed) if all(run.any() for run in runs) else None

    def halves(self) -> "list[LanesLeft]":
        """The stage with most runs of layers cut in two; none if each has one."""
        runs = self.runs
        k = max(range(len(runs)), key=lambda k: int(runs[k].sum()))
        first, last = np.nonzero(runs[k])
        parts = []
        for part in (slice(None, len(first) // 2), slice(len(first) // 2, None)):
            run = np.zeros_like(runs[k])
            run[first[part], last[part]] = True
            allowed = [*self.allowed[:k], self.allowed[k] & run, *self.allowed[k + 1 :]]
            parts.append(replace(self, allowed=allowed))
        return parts if len(first) > 1 else []


class Lanes:
    """The question whether any plan of one configuration has a step below this."""

    def __init__(
        self, prover: Prover, config: Configuration, below_ns: int, clock: Deadline | None = None
    ) -> None:
        self.prover, self.config, self.clock = prover, config, clock or Deadline(None)
        self.below_ns = below_ns
        self.apart = prover.keeps_stages_apart(config, below_ns)
        self.tables = prover.tables(config)
        sizes = self.tables.slots_per_node
        used = {sizes[j] for j in self.tables.config.groups_used}
        self.size = gcd(config.dp, *used)
        number = config.dp // self.size
        #: whether every dealing of nodes to lanes is a node order that the target runs
        self.alike = number == 1 or used == {self.size}
        self.alike &= not limits_orders(prover.instance, config)
        places = config.nodes_used
        if number > 1:
            places = tuple(n * size // self.size for size, n in zip(sizes, places, strict=True))
        all_batches = prover.instance.workload.global_batch // config.micro_batch
        even = prover.instance.search.micro_batches == "even"
        fewest, total = all_batches // config.dp if even else 1, ceil_div(all_batches, self.size)
        forward, backward, weight = prover.stage_times(config)
        self.dealing = Dealing(
            places=places,
            number=number,
            pp=config.pp,
            total=total,
            fewest=fewest,
            largest=fewest if even else min(total, all_batches - config.dp + 1),
            even=even,
            work=np.maximum((forward + backward + weight)[:, 0, -1], 1).tolist(),
        )
        self._question = lru_cache(maxsize=None)(self._new_question)

    def everything(self) -> LanesLeft | None:
        """What plans below the claim may use; None if there are none."""
        hosts: Hosts = (None,) * self.config.pp
        question = self._weightless(hosts)
        choices = question.everything(self.below_ns)
        if not all(map(len, choices)):
            return None
        return self.remaining(LanesLeft(question.allowed(choices), hosts))

    def remaining(self, lanes_left: LanesLeft) -> LanesLeft | None:
        """What of this plans below the claim may use; None if there are none."""
        # without what no lane can use, whatever it weighs
        question = self._weightless(lanes_left.hosts)
        ways = self.within(question, lanes_left)
        if ways is None:
            return None
        remaining: LanesLeft | None = replace(lanes_left, allowed=question.allowed(ways))
        if remaining and self.dealing.weights is not None:
            remaining = remaining.with_ways(self._light_ways(remaining, self.dealing.weights))
        by_deal = not self.dealing.even and self.dealing.number > 1 and self.dealing.few
        if remaining is not None and by_deal and len(self.dealing.kinds) <= MOST_KINDS:
            return self._by_deal(remaining)
        return remaining

    def _by_deal(self, lanes_left: LanesLeft) -> LanesLeft | None:
        """Without what lanes that do enough cannot use, if the others do the most that they can.

        A lane on nodes n does no more than some most, so the lanes do no more than the best deal of
        all nodes, and a lane no less than what the best deal of the others leaves.
        """
        places = self.dealing.places
        most = self.dealing.most_by_nodes(
            lambda nodes, asked: self._ways_of(lanes_left, nodes, asked) is not None,
            lanes_left.most,
        )
        if most is None:
            return None
        lanes_left = replace(lanes_left, most=most)
        possible = {nodes: upper for nodes, upper in most.items() if upper}
        others = deal(possible, self.dealing.number - 1, places)[-1]
        ways = []
        for nodes, upper in most.items():
            rest = tuple(n - c for n, c in zip(places[:-1], nodes, strict=False))
            fewest = max(1, self.dealing.total - int(others[rest]))
            if fewest <= upper and (remaining := self._ways_of(lanes_left, nodes, fewest)):
                ways.append(remaining)
        return lanes_left.with_ways(ways)

    def _ways_of(self, lanes_left: LanesLeft, nodes: Nodes, micro_batches: int) -> Remaining | None:
        """What a lane with these nodes may use to do so much; None if it cannot."""
        question = self._question(exact_tally(nodes), nodes, 1, lanes_left.hosts)
        return self.within(replace(question, needed=micro_batches), lanes_left)

    def _light_ways(self, lanes_left: LanesLeft, weights: Nodes) -> Iterator[Remaining]:
        """What the light lane may use, by its weight."""
        tally_of = tuple((weight,) for weight in weights)
        for lowest, highest, micro_batches in self.dealing.ranges(weights):
            if micro_batches <= self.dealing.largest:
                tally = Tally(tally_of, (highest,))
                question = self._question(tally, (lowest,), micro_batches, lanes_left.hosts)
                ways = self.within(question, lanes_left)
                if ways is not None:
                    yield ways

    def within(self, question: Refutation, lanes_left: LanesLeft) -> Remaining | None:
        """What of this ways of a lane below the claim may use; None if there are none."""
        everything = question.everything(self.below_ns, lanes_left.allowed)
        return question.remaining(everything, self.below_ns)

    def _new_question(
        self, tally: Tally, lowest: Used, micro_batches: int, hosts: Hosts
    ) -> Refutation:
        graph = LaneGraph(self.tables, tally, lowest, hosts, self.apart)
        return Refutation(Stages(self.prover, self.config, graph), micro_batches, self.clock)

    def _weightless(self, hosts: Hosts) -> Refutation:
        """Any lane, whatever its nodes."""
        tally = Tally(((),) * len(self.config.nodes_used), ())
        return self._question(tally, (), self.dealing.fewest, hosts)

    def exact(self, hosts: Hosts) -> Refutation:
        """All lanes, by their nodes."""
        none = (0,) * len(self.config.nodes_used)
        return self._question(exact_tally(self.config.nodes_used), none, self.dealing.fewest, hosts)


#: With more ways of a lane through one split they are not tried.
MOST_PATHS = 50_000


@dataclass(frozen=True)
class _Way:
    """The most micro-batches of a lane, and the nodes that begin with each stage, by group."""

    micro_batches: int
    begins: tuple[Nodes, ...]


def exhaust_lanes(lanes: Lanes, everything: LanesLeft) -> Outcome | None:
    """Whether any plan of the configuration is below the claim; None without an opinion.

    Raises TimeUp.
    """
    if not lanes.alike:
        return None
    stack, nodes_used = [everything], lanes.config.nodes_used
    while stack:
        lanes_left = lanes.remaining(stack.pop())
        if lanes_left is None:
            continue
        if parts := lanes_left.halves():
            stack.extend(parts)
            continue
        if not lanes.dealing.few or (ways := _ways(lanes, lanes_left)) is None:
            return None
        most = {nodes: way.micro_batches for nodes, way in ways.items()}
        chosen = best_deal(most, lanes.dealing.number, nodes_used)
        if sum(most[nodes] for nodes in chosen) < lanes.dealing.total:
            continue
        # the plan of the lanes that together can do most
        rows = [ways[nodes].begins for nodes in chosen]
        order = [j for stage in zip(*rows, strict=True) for groups in stage for j in groups]
        ends = [0, *(int(np.flatnonzero(run.any(axis=0))[0]) for run in lanes_left.runs)]
        shares = [most[nodes] for nodes in chosen for _ in range(lanes.size)]
        total = lanes.prover.instance.workload.global_batch // lanes.config.micro_batch
        while sum(shares) > total:
            shares[shares.index(max(shares))] -= 1
        plan = lanes.prover.plan(lanes.config, order, ends, shares)
        step_ns = step_time_ns(plan_costs(lanes.prover.instance, plan))
        if step_ns < lanes.below_ns:
            return Outcome(True, plan, step_ns)
        if None not in lanes_left.hosts:
            return None
        # by all sets of groups that the first undecided stage may stand on
        k, used = lanes_left.hosts.index(None), [j for j, count in enumerate(nodes_used) if count]
        before, after = lanes_left.hosts[:k], lanes_left.hosts[k + 1 :]
        for size in range(1, min(len(used), lanes.dealing.number) + 1):
            for groups in combinations(used, size):
                stack.append(replace(lanes_left, hosts=(*before, groups, *after)))
    return Outcome(True)


def _ways(lanes: Lanes, lanes_left: LanesLeft) -> dict[Nodes, _Way] | None:
    """By nodes, for lanes that have a way in time; None if there are too many to try."""
    question = lanes.exact(lanes_left.hosts)
    remaining = lanes.within(question, lanes_left)
    if remaining is None:
        return {}
    trial = Trial(question, lanes.below_ns)
    if trial.count(remaining) > MOST_PATHS:
        return None
    # of every complete way the most micro-batches below the claim
    plans, fewest = trial.plans(remaining), lanes.dealing.fewest
    upper = trial.most(plans, remaining, 0, np.full(len(plans), lanes.dealing.largest))
    todo = upper >= fewest
    while todo.any():
        lanes.clock.check()
        todo &= ~trial.lower(plans, 0, upper, todo) & (upper >= fewest)
    ways: dict[Nodes, _Way] = {}
    for steps, most in zip(plans.steps.T.tolist(), upper.tolist(), strict=True):
        stages = zip(question.stages.graph.built, steps, strict=True)
        begins = tuple(step.begins[x] for step, x in stages)
        taken = Counter(group for groups in begins for group in groups)
        nodes = tuple(taken[j] for j in range(len(lanes.config.nodes_used)))
        if most >= fewest and (nodes not in ways or ways[nodes].micro_batches < most):
            ways[nodes] = _Way(most, begins)
    return ways
