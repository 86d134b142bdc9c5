"""Every plan of a shape that may be faster than a claimed bound, tried out one by one.

What cannot be struck out is halved, and each half thinned again, until few enough complete plans
remain to simulate them all. Halves have all plans of the whole between them, thinning loses none
that is faster than the claim, so if none is found there is none.

A plan of which one replica, with all that follows, takes as long as claimed is not faster; that
needs the shares of each replica only, so with uneven shares the most micro-batches of every replica
are found by simulation, and whether they suffice. A plan that stands all this is worked out with
all its costs: it refutes the claim. Step times are the longest over replicas of what `simulated`
says, or more if links between zones lengthen them, or with several chunks per device the last one's
part of transfers to the first. With even shares a plan that these make too slow is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.plan import Plan, Shape
from formulations.schedules import SCHEDULES, ScheduleGraph, schedule_graph
from solver.simulate import Times, simulate, step_time_ns
from solver.verify.bounds import Clock, Prover
from solver.verify.families import NEVER
from solver.verify.orders import OrderGraph
from solver.verify.path_lengths import Left
from solver.verify.refutation import Allowed, Refutation, question_of
from solver.verify.zone_links import keeps_stages_apart

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

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
    """N orders with splits: steps of the graph [p, N], boundaries of virtual stages [S + 1, N]."""

    steps: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.ends[0])

    def take(self, chosen: Array | slice) -> "Plans":
        """Some of them."""
        return Plans(self.steps[:, chosen], self.ends[:, chosen])


class PlanTimes:
    """Simulated step times of plans of one shape."""

    def __init__(self, prover: Prover, shape: Shape, graph: OrderGraph) -> None:
        self.prover, self.shape, self.order = prover, shape, graph

    @property
    def _room_varies(self) -> bool:
        """Whether what is simulated may lack room: else bounds have left that out, see `Stages`."""
        even = self.prover.instance.search.micro_batches == "even"
        return not (even or SCHEDULES[self.shape.schedule].prefixes)

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """[T, n, n] tails of the graph, and of these the sync."""
        return np.stack(self.order.epilogues.all_ns), np.stack(self.order.epilogues.syncs)

    def of(self, plans: Plans, r: int, micro_batches: int) -> Array:
        """[N] step time if lane r, with so many micro-batches, were alone; a lower bound."""
        shape = self.shape
        graph = schedule_graph(shape.schedule, shape.pp, micro_batches, shape.vpp)
        size = max(1, MOST_TIMES // graph.num_operations)
        parts = [
            self._simulated(graph, plans.take(slice(i, i + size)), r)
            for i in range(0, len(plans), size)
        ]
        return np.concatenate(parts)

    def _simulated(self, graph: ScheduleGraph, plans: Plans, r: int) -> Array:
        times = self._times(graph.micro_batches, plans, r)
        end = simulate(graph, times)
        steps = zip(self.order.built, plans.steps, strict=True)
        rows = np.stack([step.tail[own] for step, own in steps])
        tail, sync = (self._after(table, rows, plans.ends) for table in self._tails)
        latest = ended(self.order, end[graph.last], rows, tail, sync)
        if not self._room_varies:
            return latest
        return np.where(self._have_room(graph.micro_batches, plans, r), latest, NEVER)

    def _groups(self, plans: Plans, r: int) -> Array:
        """[S, N] node group of every virtual stage."""
        steps = zip(self.order.built, plans.steps, strict=True)
        return np.tile([step.group[own, r] for step, own in steps], (self.shape.vpp, 1))

    def _have_room(self, micro_batches: int, plans: Plans, r: int) -> Mask:
        """[N] whether all stages fit the memory."""
        places = zip(self._groups(plans, r), plans.ends[:-1], plans.ends[1:], strict=True)
        extra = [
            self.prover.extra(self.shape, s, micro_batches)[own] for s, own in enumerate(places)
        ]
        fits: Mask = np.all(np.array(extra) < NEVER, axis=0)
        return fits

    def _times(self, micro_batches: int, plans: Plans, r: int) -> Times:
        shape, prover = self.shape, self.prover
        places = self._groups(plans, r), plans.ends[:-1], plans.ends[1:]
        forward, _, weight = prover.stage_times(shape)
        return Times(
            forward=forward[places],
            backward=self._backward(micro_batches, *places),
            weight=weight[places] if SCHEDULES[shape.schedule].splits_backward else None,
            send=self._sends(plans, r),
            blocking=prover.instance.search.blocking_sends,
        )

    def _backward(self, micro_batches: int, groups: Array, first: Array, last: Array) -> Array:
        """[S, N] with what is recomputed; of devices with several chunks in all of them."""
        shape, prover = self.shape, self.prover
        if shape.vpp == 1:
            places = zip(groups, first, last, strict=True)
            rows = [
                prover.backward_ns(shape, s, micro_batches)[own] for s, own in enumerate(places)
            ]
            return np.stack(rows)
        least: Array = prover.stage_times(shape)[1][groups, first, last]
        costs, ends = prover.stage_costs(shape), np.concatenate([first, last[-1:]])
        orders, which = np.unique(groups[: shape.pp], axis=1, return_inverse=True)
        for i, order in enumerate(orders.T):
            plans = np.flatnonzero(which.ravel() == i)
            extra = costs.extra_of_devices(order[:, None], micro_batches, ends[:, plans].T)
            least[:, plans] += extra[:, 0]
        return least

    def _sends(self, plans: Plans, r: int) -> Array:
        """[S - 1, N] messages from a virtual stage to the next."""
        steps = list(zip(self.order.built, plans.steps, strict=True))
        sends = [step.send[own, r] for step, own in steps]
        around = [steps[0][0].back[plans.steps[0], r], *sends[1:]]
        into = np.stack(list(chain(sends, around * (self.shape.vpp - 1))))[1:]
        kinds = self.order.tables.message_kind[plans.ends[1:-1]]
        own: Array = np.take_along_axis(into, kinds[..., None], axis=2)[..., 0]
        return own

    def _after(self, table: Array, rows: Array, ends: Array) -> Array:
        """[p, N] of the chunks of every device, what comes once counted once."""
        own = np.tile(rows, (self.shape.vpp, 1))
        once = table[own, 0, 0]
        each = table[own, ends[:-1], ends[1:]] - once
        whole: Array = once[: len(rows)] + each.reshape(-1, *rows.shape).sum(axis=0)
        return whole


def ended(graph: OrderGraph, ready: Array, rows: Array, tail: Array, sync: Array) -> Array:
    """[N] end of the step after last backwards, tails and of these the sync [p, N].

    rows: [p, N] of the graph's tails. The outer stages wait for each other to reduce tied
    embeddings, each as fast as its nodes.
    """
    whole: Array = (ready + tail).max(axis=0)
    if not graph.tables.tied:
        return whole
    embedding = np.array(graph.epilogues.embeddings)[rows]
    synced = (ready + sync)[[0, -1]].max(axis=0) + embedding[[0, -1]].max(axis=0)
    after = (tail - sync - embedding)[[0, -1]].max(axis=0)
    latest: Array = np.maximum(whole, synced + after)
    return latest


#: Complete plans that are simulated rather than halved further.
FEW = 2048


@dataclass(frozen=True)
class ChosenPlans(Plans):
    """choices: [p, N] of what is left of every stage."""

    choices: Array


def exhaust(
    prover: Prover, shape: Shape, below_ns: int, clock: Clock, allowed: Allowed | None = None
) -> Outcome | None:
    """Whether any plan of the shape has a step time below this; None without an opinion.

    There is none with too many node orders. Nor, where fewer micro-batches may take longer (ZB-H1),
    if the most that every replica can have suffice, but the shares dealt out of them are too slow.

    allowed: what such plans may use, if more is known. Raises TimeUpError.
    """
    apart = shape.vpp == 1 and keeps_stages_apart(prover, shape, below_ns)
    graph = OrderGraph(prover.tables(shape), apart=apart)
    trial = Trial(question_of(prover, shape, graph, clock, below_ns), below_ns)
    if not trial.question.applies:
        return None
    everything = trial.question.everything(below_ns, allowed)
    thinned = trial.question.remaining(everything, below_ns)
    if thinned is not None and trial.count(thinned) > FEW:
        thinned = trial.question.by_windows(thinned, below_ns)
    if thinned is None:
        return Outcome(tried=False)
    found = trial.hunted(thinned)
    slow = found.step_time_ns is not None and found.step_time_ns >= below_ns
    return None if slow else found


class Trial:
    """The plans of one shape against one claim."""

    def __init__(self, question: Refutation, below_ns: int) -> None:
        self.question, self.below_ns, self.stages = question, below_ns, question.stages
        self.instance, self.shape = self.stages.instance, self.stages.shape
        self.prover, self.graph = self.stages.prover, self.stages.graph
        self.times = PlanTimes(self.prover, self.shape, self.graph)

    def hunted(self, everything: Left) -> Outcome:
        """Whether a plan among these is below the claim. Raises TimeUpError."""
        stack, tried = [everything], False
        while stack:
            left = self.question.remaining(stack.pop(), self.below_ns)
            if left is None:
                continue
            tried = True
            if self.count(left) > FEW:
                stack.extend(self.halves(left))
            elif (found := self.faster(left)) is not None:
                return Outcome(tried, *found)
        return Outcome(tried)

    def halves(self, left: Left) -> list[Left]:
        """The device with most choices cut in two: by last layer, first layer, chunks or step."""
        k = max(range(len(left)), key=lambda k: len(left[k]))
        own, (*sizes, _) = left[k], self.stages.sizes(k)[:, left[k].own]
        columns = (own.last, own.first, *sizes, own.step)
        values = next(one for one in columns if one.min() < one.max())
        known = np.unique(values)
        low = values < known[len(known) // 2]
        return [[*left[:k], own.take(half), *left[k + 1 :]] for half in (low, ~low)]

    def count(self, left: Left) -> float:
        """Number of complete plans, shares aside."""
        size = self.stages.size
        ways = np.zeros((1, size))
        ways[0, 0] = 1
        for step, choices in zip(self.graph.built, left, strict=True):
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

    def plans(self, left: Left) -> ChosenPlans:
        """All complete plans."""
        chosen = np.empty((0, 1), dtype=np.int64)
        state = end = np.zeros(1, dtype=np.int64)
        for step, choices in zip(self.graph.built, left, strict=True):
            fits = step.source[choices.step] == state[:, None]
            parent, edge = np.nonzero(fits & (choices.first == end[:, None]))
            chosen = np.concatenate([chosen[:, parent], edge[None]])
            state, end = step.target[choices.step[edge]], choices.last[edge]
        each = [(own.step[x], own.own[x]) for own, x in zip(left, chosen, strict=True)]
        sizes = np.stack([self.stages.sizes(k)[:, own] for k, (_, own) in enumerate(each)], axis=1)
        sizes = sizes.reshape(self.shape.num_stages, -1)
        ends = np.concatenate([0 * sizes[:1], sizes.cumsum(axis=0)])
        return ChosenPlans(np.stack([step for step, _ in each]), ends, chosen)

    def _suffice(self, shares: Array) -> Mask:
        """[N] whether lanes with these most micro-batches per replica [lanes, N] do all."""
        return self.question.suffice(shares, np.array(list(self.stages.lanes.values())))

    def _shares(self, plans: ChosenPlans, left: Left) -> Array:
        """[lanes, N] most micro-batches per replica below the claim, where that may suffice."""
        shares = np.stack([self._first(plans, left, r) for r in self.stages.lanes])
        settled = np.zeros(shares.shape, dtype=bool)
        while (todo := ~settled & self._suffice(shares)).any():
            for lane, r in enumerate(self.stages.lanes):
                for m in np.unique(shares[lane, todo[lane]]).tolist():
                    own = np.flatnonzero(todo[lane] & (shares[lane] == m))
                    slow = self.times.of(plans.take(own), r, m) >= self.below_ns
                    settled[lane, own] = ~slow
                    shares[lane, own[slow]] -= 1
                    todo[lane, own] = False
        return shares

    def _first(self, plans: ChosenPlans, left: Left, r: int) -> Array:
        """[N] what the bounds leave to lane r; with even shares all that is left may have these."""
        if self.stages.even:
            return np.full(len(plans), self.stages.least)
        return self.most(plans, left, r, np.full(len(plans), self.question.needed))

    def most(self, plans: ChosenPlans, left: Left, r: int, upper: Array) -> Array:
        """[N] most micro-batches, `upper` at most, that the bounds leave to lane r."""
        most = upper
        stages = self.question.most(left, r, self.below_ns - 1)
        for own, choices in zip(stages, plans.choices, strict=True):
            most = np.minimum(most, own[choices])
        return most

    def _worked_out(self, plans: Plans, i: int, lanes: Sequence[int]) -> tuple[Plan, int] | None:
        """The plan, if it is below the claim with all costs: zones, tied embeddings."""
        steps, ends = plans.steps[:, i].tolist(), plans.ends[:, i].tolist()
        shares: list[int] | None = [self.stages.least] * self.shape.dp
        if not self.stages.even:
            shares = self._uneven(self._order(steps), ends, self._per_replica(lanes))
        if shares is None:
            return None
        plan = self.plan(steps, ends, shares)
        costs = self.costs(plan)
        found = plan, step_time_ns(costs)
        short = bool((costs.memory_bytes > costs.limit_bytes).any())
        return None if self.stages.even and (short or found[1] >= self.below_ns) else found

    def plan(self, steps: Sequence[int], ends: Sequence[int], shares: Sequence[int]) -> Plan:
        """The plan of these steps and layer boundaries."""
        return self.prover.plan(self.shape, self._order(steps), ends, shares)

    def costs(self, plan: Plan) -> PlanCosts:
        """What it costs, worked out again."""
        return plan_costs(self.instance, plan)

    def _order(self, steps: Sequence[int]) -> list[int]:
        """Groups of the nodes in order."""
        each = zip(self.graph.built, steps, strict=True)
        return [group for step, index in each for group in step.begins[index]]

    def _uneven(
        self, order: Sequence[int], ends: Sequence[int], most: list[int]
    ) -> list[int] | None:
        """Micro-batches of replicas that have so many at most; None if they are too slow."""
        for r in range(self.shape.dp):
            # one by one: of ZB-H1, fewer micro-batches may take longer
            while self._alone_ns(order, ends, most, r) >= self.below_ns:
                most[r] -= 1
                if most[r] < self.stages.least:
                    return None
        return self._dealt(most)

    def _alone_ns(
        self, order: Sequence[int], ends: Sequence[int], shares: Sequence[int], r: int
    ) -> int:
        """Step time if replica r were alone; with fewer micro-batches it may recompute less."""
        plan = self.prover.plan(self.shape, order, ends, shares)
        return step_time_ns(_alone(plan_costs(self.instance, plan), r, shares[r]))

    def _per_replica(self, lanes: Sequence[int]) -> list[int]:
        """[dp] the number of every replica's lane."""
        number = dict(zip(self.stages.lanes, lanes, strict=True))
        return [number[self.graph.alike[r // self.graph.width]] for r in range(self.shape.dp)]

    def _dealt(self, most: Sequence[int]) -> list[int] | None:
        """Micro-batches of every replica, none above its most; None if that is too few."""
        shares, total = [self.stages.least] * self.shape.dp, self.stages.total
        for r, largest in enumerate(most):
            shares[r] += min(largest - shares[r], total - sum(shares))
        return shares if sum(shares) == total else None


def _alone(costs: PlanCosts, r: int, micro_batches: int) -> PlanCosts:
    """The costs with replica r only."""
    names = "forward_ns", "backward_ns", "weight_ns", "send_ns", "memory_bytes", "limit_bytes"
    columns = {name: getattr(costs, name)[:, r : r + 1] for name in names}
    return replace(costs, micro_batches=(micro_batches,), **columns)
