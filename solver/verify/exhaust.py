"""Every plan of a shape that may be faster than a claimed bound, tried out one by one.

What `rounds` cannot strike out is halved, and each half thinned again, until few enough complete
plans remain to simulate them all. A plan of which one replica, with all that follows, takes as long
as claimed is not faster; that needs the shares of each replica only, so with uneven shares the most
micro-batches of every replica are found by simulation, and whether they suffice. A plan that stands
all this is worked out again by `recount`: it refutes the claim.

Proof of completeness. Halves have all plans of the whole between them, thinning loses none that is
faster than the claim, and the step time is the longest over replicas of what `Trial` simulates, or
more if links between zones lengthen it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.costs.plan_costs import PlanCosts
from formulations.plan import Plan, Shape
from formulations.schedules import SCHEDULES, schedule_graph
from solver.simulate import Times, simulate, step_time_ns, trace
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.lengths import NEVER
from solver.verify.orders import OrderGraph
from solver.verify.recount import Recount
from solver.verify.refutation import Allowed, Left, Refutation
from solver.verify.zone_links import keeps_stages_apart

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Complete plans that are simulated rather than halved further.
FEW = 512
#: End times held at once.
MOST_TIMES = 1 << 25


@dataclass(frozen=True)
class Outcome:
    """The claim holds, whether or not plans had to be tried; or a plan, in whole ns, refutes it."""

    tried: bool
    plan: Plan | None = None
    step_time_ns: int | None = None


@dataclass(frozen=True)
class Plans:
    """N orders with splits: choices and steps of the graph [N, p], boundaries [N, p + 1]."""

    choices: Array
    steps: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.steps)


def exhaust(
    prover: Prover, shape: Shape, below_ns: int, clock: Clock, allowed: Allowed | None = None
) -> Outcome | None:
    """Whether any plan of the shape has a step time below this; None with too many node orders.

    allowed: what such plans may use, if more is known. Raises TimeUpError.
    """
    apart = keeps_stages_apart(prover, shape, below_ns)
    graph = OrderGraph(prover.instance, shape, apart=apart)
    trial = Trial(Refutation(prover, shape, graph, clock), below_ns)
    if not trial.refutation.applies or not trial.certain:
        return None
    stack = [trial.refutation.everything(below_ns, allowed)]
    tried = False
    while stack:
        left = trial.refutation.remaining(stack.pop(), below_ns)
        if left is None:
            continue
        tried = True
        if trial.count(left) > FEW:
            stack.extend(_halves(left))
        elif (found := trial.faster(left)) is not None:
            return Outcome(tried, *found)
    return Outcome(tried)


def _halves(left: Left) -> list[Left]:
    """The stage with most choices cut in two, by last layer, first layer or step."""
    k = max(range(len(left)), key=lambda k: len(left[k]))
    for values in (left[k].last, left[k].first, left[k].step):
        known = np.unique(values)
        if len(known) > 1:
            low = values < known[len(known) // 2]
            return [[*left[:k], left[k].take(part), *left[k + 1 :]] for part in (low, ~low)]
    raise AssertionError("one choice is not halved")


class Trial:
    """The plans of one shape against one claim."""

    def __init__(self, refutation: Refutation, below_ns: int) -> None:
        self.instance, self.shape = refutation.instance, refutation.shape
        self.refutation, self.below_ns = refutation, below_ns

    @property
    def certain(self) -> bool:
        """Whether a replica with fewer micro-batches is surely no slower, if shares may differ."""
        return self.refutation.even or SCHEDULES[self.shape.schedule].prefixes

    def count(self, left: Left) -> float:
        """Number of complete plans, shares aside."""
        size = len(self.refutation.blocks)
        ways = np.zeros((1, size))
        ways[0, 0] = 1
        for step, choices in zip(self.refutation.steps, left, strict=True):
            reached = ways[step.source[choices.step], choices.first]
            ways = np.zeros((step.num_targets, size))
            np.add.at(ways, (step.target[choices.step], choices.last), reached)
        return float(ways[:, -1].sum())

    def faster(self, left: Left) -> tuple[Plan, int] | None:
        """A plan among these below the claim, and its step time; None if there is none."""
        plans = self.plans(left)
        shares = self._shares(plans, left)
        for i in np.flatnonzero(self._suffice(shares)).tolist():
            found = self._worked_out(plans, i, shares[:, i].tolist())
            if found is not None:
                return found
        return None

    def plans(self, left: Left) -> Plans:
        """All complete plans."""
        chosen = np.empty((1, 0), dtype=np.int64)
        ends = np.zeros((1, 1), dtype=np.int64)
        state = np.zeros(1, dtype=np.int64)
        for step, choices in zip(self.refutation.steps, left, strict=True):
            fits = step.source[choices.step] == state[:, None]
            parent, edge = np.nonzero(fits & (choices.first == ends[:, -1:]))
            chosen = np.column_stack([chosen[parent], edge])
            ends = np.column_stack([ends[parent], choices.last[edge]])
            state = step.target[choices.step[edge]]
        steps = [choices.step[x] for choices, x in zip(left, chosen.T, strict=True)]
        return Plans(chosen, np.column_stack(steps), ends)

    def _suffice(self, shares: Array) -> Mask:
        """[N] whether lanes with these most micro-batches per replica [lanes, N] do all."""
        return self.refutation.suffice(shares, np.array(list(self.refutation.lanes.values())))

    def _shares(self, plans: Plans, left: Left) -> Array:
        """[lanes, N] most micro-batches per replica below the claim, where that may suffice."""
        shares = np.stack([self._first(plans, left, r) for r in self.refutation.lanes])
        settled = np.zeros(shares.shape, dtype=bool)
        while (todo := ~settled & self._suffice(shares)).any():
            for lane, r in enumerate(self.refutation.lanes):
                for m in np.unique(shares[lane, todo[lane]]).tolist():
                    own = np.flatnonzero(todo[lane] & (shares[lane] == m))
                    slow = self.times(plans, own, r, m) >= self.below_ns
                    settled[lane, own] = ~slow
                    shares[lane, own[slow]] -= 1
                    todo[lane, own] = False
        return shares

    def _first(self, plans: Plans, left: Left, r: int) -> Array:
        """[N] what the bounds leave to lane r; with even shares no more than these."""
        question = self.refutation
        most = np.full(len(plans), question.least if question.even else question.needed)
        for k, own in enumerate(question.most(left, r, self.below_ns - 1)):
            np.minimum(most, own[plans.choices[:, k]], out=most)
        return most

    def times(self, plans: Plans, chosen: Array, r: int, m: int) -> Array:
        """[chosen] step time if lane r, with m micro-batches, were alone; a lower bound."""
        operations = 3 * m * self.shape.pp
        size = max(1, MOST_TIMES // operations)
        parts = [
            self._simulated(plans, chosen[i : i + size], r, m) for i in range(0, len(chosen), size)
        ]
        return np.concatenate(parts)

    def _simulated(self, plans: Plans, chosen: Array, r: int, m: int) -> Array:
        question, ends = self.refutation, plans.ends[chosen].T
        steps = list(zip(question.steps, plans.steps[chosen].T, strict=True))
        groups = np.stack([step.group[index, r] for step, index in steps])
        kinds = question.graph.kind[ends[1:-1]]
        send = [step.send[index, r, n] for (step, index), n in zip(steps[1:], kinds, strict=True)]
        splits = SCHEDULES[self.shape.schedule].splits_backward
        backward = [
            question.backward_ns(k, m)[own, ends[k], ends[k + 1]] for k, own in enumerate(groups)
        ]
        times = Times(
            forward=question.forward[groups, ends[:-1], ends[1:]],
            backward=np.stack(backward),
            weight=question.weight[groups, ends[:-1], ends[1:]] if splits else None,
            send=np.array(send, dtype=np.int64).reshape(-1, len(chosen)),
            blocking=self.instance.search.blocking_sends,
        )
        rows = np.stack([step.tail[index] for step, index in steps])
        graph = schedule_graph(self.shape.schedule, self.shape.pp, m)
        end = simulate(graph, times)
        latest = self._ended(end[graph.last], rows, ends)
        slow = np.where(latest >= self.below_ns, latest, NEVER)
        if slow[best := int(slow.argmin())] < NEVER:
            tail = question.tails[rows[:, best], ends[:-1, best], ends[1:, best]]
            device = int((end[graph.last, best] + tail).argmax())
            column, last = np.array([best]), graph.last[[device]]
            question.keep(m, trace(graph, times, end, column, last), device)
        return latest

    def _ended(self, ready: Array, rows: Array, ends: Array) -> Array:
        """[chosen] end of the step after these last backwards [p, chosen]; rows of tails."""
        graph = self.refutation.graph
        parts = (self.refutation.tails, np.stack(graph.syncs))
        tail, sync = (part[rows, ends[:-1], ends[1:]] for part in parts)
        return ended(graph, ready, rows, tail, sync)

    def _worked_out(self, plans: Plans, i: int, lanes: Sequence[int]) -> tuple[Plan, int] | None:
        """The plan, if it is below the claim with all costs: zones, tied embeddings."""
        question = self.refutation
        steps = zip(question.steps, plans.steps[i].tolist(), strict=True)
        order = [group for step, index in steps for group in step.begins[index]]
        most = self._per_replica(lanes)
        ends = plans.ends[i].tolist()
        for r in range(self.shape.dp):
            while self._alone_ns(order, ends, most, r) >= self.below_ns:
                most[r] -= 1
                if most[r] < question.least:
                    return None
        shares = self._dealt(most)
        if shares is None:
            return None
        plan = question.prover.plan(self.shape, order, ends, shares)
        return plan, step_time_ns(Recount(self.instance, plan).costs())

    def _alone_ns(
        self, order: Sequence[int], ends: Sequence[int], shares: Sequence[int], r: int
    ) -> int:
        """Step time if replica r were alone; with fewer micro-batches it may recompute less."""
        plan = self.refutation.prover.plan(self.shape, order, ends, shares)
        return step_time_ns(_alone(Recount(self.instance, plan).costs(), r, shares[r]))

    def _per_replica(self, lanes: Sequence[int]) -> list[int]:
        """[dp] the number of every replica's lane."""
        question = self.refutation
        number = dict(zip(question.lanes, lanes, strict=True))
        return [number[question.alike[r // question.graph.width]] for r in range(self.shape.dp)]

    def _dealt(self, most: Sequence[int]) -> list[int] | None:
        """Micro-batches of every replica, none above its most; None if that is too few."""
        total = self.instance.workload.global_batch // self.shape.micro_batch
        shares = [min(one, self.refutation.least) for one in most]
        if min(shares) < self.refutation.least:
            return None
        for r, one in enumerate(most):
            shares[r] += min(one - shares[r], total - sum(shares))
        return shares if sum(shares) == total else None


def ended(graph: OrderGraph, ready: Array, rows: Array, tail: Array, sync: Array) -> Array:
    """[N] end of the step after last backwards, tails and of these the sync [p, N].

    rows: [p, N] of the graph's tails. The outer stages wait for each other to reduce tied
    embeddings, each as fast as its nodes.
    """
    whole: Array = (ready + tail).max(axis=0)
    if not graph.tied:
        return whole
    embedding = np.array(graph.embeddings)[rows]
    synced = (ready + sync)[[0, -1]].max(axis=0) + embedding[[0, -1]].max(axis=0)
    after = (tail - sync - embedding)[[0, -1]].max(axis=0)
    latest: Array = np.maximum(whole, synced + after)
    return latest


def _alone(costs: PlanCosts, r: int, micro_batches: int) -> PlanCosts:
    """The costs with replica r only."""
    one = slice(r, r + 1)
    return replace(
        costs,
        micro_batches=(micro_batches,),
        forward_ns=costs.forward_ns[:, one],
        backward_ns=costs.backward_ns[:, one],
        weight_ns=costs.weight_ns[:, one],
        send_ns=costs.send_ns[:, one],
        memory_bytes=costs.memory_bytes[:, one],
        limit_bytes=costs.limit_bytes[:, one],
    )
