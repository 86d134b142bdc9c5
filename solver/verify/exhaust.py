"""Every plan of a configuration that may be faster than a claimed bound, tried out one by one.

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
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from formulations.costs.intervals import Array, Mask
from formulations.costs.plan_costs import plan_costs
from formulations.plan import Configuration, Plan
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.registry import SCHEDULES
from solver.interrupt import Deadline
from solver.simulate import Times, last_backwards_ns, simulate, step_time_ns, tail_ns
from solver.verify.bounds import Prover
from solver.verify.orders import OrderGraph
from solver.verify.path_lengths import NEVER, Remaining
from solver.verify.refutation import Allowed, Refutation, question_of

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
    """N orders with splits: steps of the graph [p, N], boundaries of virtual stages [S + 1, N].

    choices: [p, N] of what is left of every stage.
    """

    steps: Array
    ends: Array
    choices: Array

    def __len__(self) -> int:
        return len(self.ends[0])

    def take(self, chosen: Array | slice) -> "Plans":
        """Some of them."""
        return Plans(self.steps[:, chosen], self.ends[:, chosen], self.choices[:, chosen])


def ended(graph: OrderGraph, ready: Array, rows: Array, tail: Array, sync: Array) -> Array:
    """[N] end of the step after last backwards, tails and of these the sync [p, N].

    rows: [p, N] of the graph's tails. The outer stages wait for each other to reduce tied
    embeddings, each as fast as its nodes.
    """
    alone: Array = (ready + tail).max(axis=0)
    if not graph.tables.tied:
        return alone
    embedding = np.array(graph.epilogues.embeddings)[rows]
    synced = (ready + sync)[[0, -1]].max(axis=0) + embedding[[0, -1]].max(axis=0)
    after = (tail - sync - embedding)[[0, -1]].max(axis=0)
    return np.asarray(np.maximum(alone, synced + after))


#: Complete plans that are simulated rather than halved further.
FEW = 2048


def exhaust(
    prover: Prover,
    config: Configuration,
    below_ns: int,
    clock: Deadline,
    allowed: Allowed | None = None,
) -> Outcome | None:
    """Whether any plan of the configuration has a step time below this; None without an opinion.

    There is none with too many node orders. Nor, where fewer micro-batches may take longer (ZB-H1),
    if the most that every replica can have suffice, but the shares dealt out of them are too slow.

    allowed: what such plans may use, if more is known. Raises TimeUp.
    """
    apart = config.vpp == 1 and prover.keeps_stages_apart(config, below_ns)
    graph = OrderGraph(prover.tables(config), apart=apart)
    if graph.steps is None:
        return None
    outcome = Trial(question_of(prover, config, graph, below_ns, clock), below_ns).outcome(allowed)
    slow = outcome.step_time_ns is not None and outcome.step_time_ns >= below_ns
    return None if slow else outcome


class Trial:
    """The plans of one configuration against one claim."""

    def __init__(self, question: Refutation, below_ns: int) -> None:
        self.question, self.below_ns, self.stages = question, below_ns, question.stages
        self.instance, self.config = self.stages.instance, self.stages.config
        self.prover, self.graph = self.stages.prover, self.stages.graph
        self.priced_for = self.instance
        #: whether what is simulated may lack room: else bounds have left that out, see `Stages`
        self.room_varies = not (self.stages.even or SCHEDULES[self.config.schedule].prefixes)

    def outcome(self, allowed: Allowed | None = None) -> Outcome:
        """Whether any plan is below the claim. Raises TimeUp."""
        question, below_ns = self.question, self.below_ns
        remaining = question.remaining(question.everything(below_ns, allowed), below_ns)
        if remaining is not None and self.count(remaining) > FEW:
            remaining = question.by_windows(remaining, below_ns)
        if remaining is None:
            return Outcome(tried=False)
        stack, tried = [remaining], False
        while stack:
            remaining = question.remaining(stack.pop(), below_ns)
            if remaining is None:
                continue
            tried = True
            if self.count(remaining) > FEW:
                stack.extend(self.halves(remaining))
            elif (faster := self.faster(remaining)) is not None:
                return Outcome(tried, *faster)
        return Outcome(tried)

    def halves(self, remaining: Remaining) -> list[Remaining]:
        """The device with most choices cut in two: by last layer, first layer, chunks or step."""
        k = max(range(len(remaining)), key=lambda k: len(remaining[k]))
        choices, (*sizes, _) = remaining[k], self.stages.sizes(k)[:, remaining[k].row]
        columns = (choices.last, choices.first, *sizes, choices.step)
        values = next(column for column in columns if column.min() < column.max())
        distinct = np.unique(values)
        low = values < distinct[len(distinct) // 2]
        parts = choices.take(low), choices.take(~low)
        return [[*remaining[:k], part, *remaining[k + 1 :]] for part in parts]

    def count(self, remaining: Remaining) -> float:
        """Number of complete plans, shares aside."""
        size = self.stages.size
        ways = np.zeros((1, size))
        ways[0, 0] = 1
        for step, choices in zip(self.graph.built, remaining, strict=True):
            reached = ways[step.source[choices.step], choices.first]
            ways = np.zeros((step.num_targets, size))
            np.add.at(ways, (step.target[choices.step], choices.last), reached)
        return float(ways[:, -1].sum())

    def faster(self, remaining: Remaining) -> tuple[Plan, int] | None:
        """A plan among these below the claim, and its step time; None if there is none."""
        plans = self.plans(remaining)
        shares = self._shares(plans, remaining)
        for i in np.flatnonzero(self.question.suffice(shares)).tolist():
            faster = self._worked_out(plans, i, shares[:, i].tolist())
            if faster is not None:
                return faster
        return None

    def plans(self, remaining: Remaining) -> Plans:
        """All complete plans."""
        chosen = np.empty((0, 1), dtype=np.int64)
        state = end = np.zeros(1, dtype=np.int64)
        for step, choices in zip(self.graph.built, remaining, strict=True):
            fits = step.source[choices.step] == state[:, None]
            parent, edge = np.nonzero(fits & (choices.first == end[:, None]))
            chosen = np.concatenate([chosen[:, parent], edge[None]])
            state, end = step.target[choices.step[edge]], choices.last[edge]
        pairs = list(zip(remaining, chosen, strict=True))
        sizes = [self.stages.sizes(k)[:, choices.row[x]] for k, (choices, x) in enumerate(pairs)]
        stacked = np.stack(sizes, axis=1).reshape(self.config.num_stages, -1)
        ends = np.concatenate([0 * stacked[:1], stacked.cumsum(axis=0)])
        return Plans(np.stack([choices.step[x] for choices, x in pairs]), ends, chosen)

    def _shares(self, plans: Plans, remaining: Remaining) -> Array:
        """[lanes, N] most micro-batches per replica below the claim, where that may suffice."""
        lanes, even = self.stages.lanes, self.stages.even
        upper = np.full(len(plans), self.stages.least if even else self.question.needed)
        shares = np.stack([upper if even else self.most(plans, remaining, r, upper) for r in lanes])
        settled = np.zeros(shares.shape, dtype=bool)
        while (todo := ~settled & self.question.suffice(shares)).any():
            for lane, r in enumerate(lanes):
                settled[lane] |= self.lower(plans, r, shares[lane], todo[lane])
        return shares

    def lower(self, plans: Plans, r: int, most: Array, todo: Mask) -> Mask:
        """[N] whether lane r with so many micro-batches [N], where asked, is below the claim.

        Where it is not, takes one off: of ZB-H1, fewer may take longer.
        """
        below = np.zeros(len(plans), dtype=np.bool_)
        for m in np.unique(most[todo]).tolist():
            rows = np.flatnonzero(todo & (most == m))
            below[rows] = self.step_times(plans.take(rows), r, m) < self.below_ns
            most[rows] -= ~below[rows]
        return below

    def most(self, plans: Plans, remaining: Remaining, r: int, upper: Array) -> Array:
        """[N] most micro-batches, `upper` at most, that the bounds leave to lane r."""
        by_stage = self.question.most(remaining, r, self.below_ns - 1)
        rows = [most[chosen] for most, chosen in zip(by_stage, plans.choices, strict=True)]
        return np.asarray(np.min([upper, *rows], axis=0))

    def _worked_out(self, plans: Plans, i: int, lanes: Sequence[int]) -> tuple[Plan, int] | None:
        """The plan, if it is below the claim with all costs: zones, tied embeddings."""
        steps, ends = plans.steps[:, i].tolist(), plans.ends[:, i].tolist()
        shares: list[int] | None = [self.stages.least] * self.config.dp
        if not self.stages.even:
            number = dict(zip(self.stages.lanes, lanes, strict=True))
            width, alike = self.graph.width, self.graph.alike
            most = [number[alike[r // width]] for r in range(self.config.dp)]
            shares = self._uneven(self._order(steps), ends, most)
        if shares is None:
            return None
        plan = self.plan(steps, ends, shares)
        step_ns, fits = self.priced(plan)
        fails = self.stages.even and not (fits and step_ns < self.below_ns)
        return None if fails else (plan, step_ns)

    def plan(self, steps: Sequence[int], ends: Sequence[int], shares: Sequence[int]) -> Plan:
        """The plan of these steps and layer boundaries."""
        return self.prover.plan(self.config, self._order(steps), ends, shares)

    def priced(self, plan: Plan) -> tuple[int, bool]:
        """Its step with all costs, worked out again, and whether it fits in memory."""
        costs = plan_costs(self.priced_for, plan)
        return step_time_ns(costs), bool((costs.memory_bytes <= costs.limit_bytes).all())

    def _order(self, steps: Sequence[int]) -> list[int]:
        """Groups of the nodes in order."""
        pairs = zip(self.graph.built, steps, strict=True)
        return [group for step, index in pairs for group in step.begins[index]]

    def _uneven(
        self, order: Sequence[int], ends: Sequence[int], upper_shares: list[int]
    ) -> list[int] | None:
        """Micro-batches of replicas that have so many at most; None if they are too slow."""
        fewest, total, most = self.stages.least, self.stages.total, np.array(upper_shares)
        slow = np.ones_like(most)
        # one by one: of ZB-H1, fewer micro-batches may take longer
        while slow.any():
            # each replica alone; with fewer micro-batches it may recompute less
            plan = self.prover.plan(self.config, order, ends, most.tolist())
            costs = plan_costs(self.instance, plan)
            slow = tail_ns(costs, last_backwards_ns(costs)).max(axis=0) >= self.below_ns
            most -= slow
            if most.min() < fewest:
                return None
        shares = [fewest] * self.config.dp
        for r, upper in enumerate(most.tolist()):
            shares[r] += min(upper - fewest, total - sum(shares))
        return shares if sum(shares) == total else None

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """[T, n, n] tails of the graph, and of these the sync."""
        return np.stack(self.graph.epilogues.all_ns), np.stack(self.graph.epilogues.syncs)

    def step_times(self, plans: Plans, r: int, micro_batches: int) -> Array:
        """[N] simulated step if lane r, with so many micro-batches, were alone; a lower bound."""
        config = self.config
        graph = schedule_graph(config.schedule, config.pp, micro_batches, *config.chunking)
        size = max(1, MOST_TIMES // graph.num_operations)
        parts = [
            self._simulated(graph, plans.take(slice(i, i + size)), r)
            for i in range(0, len(plans), size)
        ]
        return np.concatenate(parts)

    def _simulated(self, graph: ScheduleGraph, plans: Plans, r: int) -> Array:
        config, prover, m = self.config, self.prover, graph.micro_batches
        steps = list(zip(self.graph.built, plans.steps, strict=True))
        groups = np.tile([step.group[x, r] for step, x in steps], (config.vpp, 1))
        places = groups, plans.ends[:-1], plans.ends[1:]  # [S, N] of every virtual stage
        forward, _, weight = prover.stage_times(config)
        # messages back where they take other times; of one chunk per device
        backs = [step.send_back[x, r] for step, x in steps[1:] if step.send_back is not None]
        times = Times(
            forward=forward[places],
            backward=self._backward(m, *places),
            weight=weight[places] if SCHEDULES[config.schedule].splits_backward else None,
            send=self._sends(plans, r),
            send_back=np.stack(backs) if backs else None,
            blocking=self.instance.search.blocking_sends,
        )
        ready = simulate(graph, times)[graph.last]
        rows = np.stack([step.tail[x] for step, x in steps])
        tail, sync = (self._after(table, rows, plans.ends) for table in self._tails)
        latest = ended(self.graph, ready, rows, tail, sync)
        if not self.room_varies:
            return latest
        by_stage = enumerate(zip(*places, strict=True))
        extra = [prover.extra(config, s, m)[place] for s, place in by_stage]
        return np.where(np.max(extra, axis=0) < NEVER, latest, NEVER)

    def _backward(self, micro_batches: int, groups: Array, first: Array, last: Array) -> Array:
        """[S, N] with what is recomputed; of devices with several chunks in all of them."""
        config, prover = self.config, self.prover
        if config.vpp == 1:
            places = zip(groups, first, last, strict=True)
            rows = [prover.backward_ns(config, s, micro_batches)[at] for s, at in enumerate(places)]
            return np.stack(rows)
        backward: Array = prover.stage_times(config)[1][groups, first, last]
        costs, ends = prover.stage_costs(config), np.concatenate([first, last[-1:]])
        orders, which = np.unique(groups[: config.pp], axis=1, return_inverse=True)
        for i, order in enumerate(orders.T):
            plans = np.flatnonzero(which.ravel() == i)
            extra = costs.extra_of_devices(order[:, None], micro_batches, ends[:, plans].T)
            backward[:, plans] += extra[:, 0]
        return backward

    def _sends(self, plans: Plans, r: int) -> Array:
        """[S - 1, N] messages from a virtual stage to the next."""
        steps = list(zip(self.graph.built, plans.steps, strict=True))
        sends = [step.send[chosen, r] for step, chosen in steps]
        around = [steps[0][0].back[plans.steps[0], r], *sends[1:]]
        into = np.stack(list(chain(sends, around * (self.config.vpp - 1))))[1:]
        kinds = self.graph.tables.message_kind[plans.ends[1:-1]]
        return np.asarray(np.take_along_axis(into, kinds[..., None], axis=2)[..., 0])

    def _after(self, table: Array, rows: Array, ends: Array) -> Array:
        """[p, N] of the chunks of every device by a table [T, n, n], what comes once counted once.

        rows: [p, N] of the table.
        """
        by_stage = np.tile(rows, (self.config.vpp, 1))
        once = table[by_stage, 0, 0]
        each = table[by_stage, ends[:-1], ends[1:]] - once
        return np.asarray(once[: len(rows)] + each.reshape(-1, *rows.shape).sum(axis=0))
