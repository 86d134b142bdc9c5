"""Every plan of a shape with several chunks per device that may be faster than a claimed bound.

What `chunks` cannot strike out is halved, and each half thinned again, until few enough complete
plans remain to simulate them all. The simulated times are lower bounds, exact but for links between
zones and the last device's part of transfers to the first: a plan with a shorter one is worked out
again by `recount`.

Proof of completeness. Halves have all plans of the whole between them, and thinning loses none that
is faster than the claim.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Plan, Shape
from formulations.schedules import ScheduleGraph, schedule_graph
from solver.simulate import Times, simulate, step_time_ns, trace
from solver.verify.bounds import Prover
from solver.verify.chunks import Chunks
from solver.verify.clock import Clock
from solver.verify.device_ways import Left
from solver.verify.exhaust import MOST_TIMES, Outcome, ended
from solver.verify.lengths import NEVER
from solver.verify.recount import Recount

Array = NDArray[np.int64]

#: Complete plans that are simulated rather than halved further.
FEW = 256


@dataclass(frozen=True)
class Plans:
    """N orders with splits: steps of the graph [p, N], boundaries of virtual stages [S + 1, N]."""

    steps: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.ends[0])


def exhaust_chunks(prover: Prover, shape: Shape, below_ns: int, clock: Clock) -> Outcome | None:
    """Whether any plan of the shape has a step time below this; None with too many node orders.

    Raises TimeUpError.
    """
    trial = _Trial(Chunks(prover, shape, clock), below_ns)
    everything = trial.question.everything(below_ns)
    if everything is None:
        return None
    stack, tried = [everything], False
    while stack:
        left = trial.question.remaining(stack.pop(), below_ns)
        if left is None:
            continue
        tried = True
        if trial.count(left) > FEW:
            stack.extend(_halves(left))
        elif (found := trial.faster(left)) is not None:
            return Outcome(tried, *found)
    return Outcome(tried)


def _halves(left: Left) -> list[Left]:
    """The device with most sizes of chunks cut in two: by layers in all, of a chunk, or before."""

    def variety(k: int) -> int:
        return len(np.unique(left[k].sizes, axis=1).T) * len(left) + len(left[k]) // len(left)

    for k in sorted(range(len(left)), key=variety, reverse=True):
        ways = left[k]
        for values in (ways.sizes.sum(axis=0), *ways.sizes, ways.before, ways.step):
            known = np.unique(values)
            if len(known) > 1:
                low = values < known[len(known) // 2]
                return [[*left[:k], ways.take(part), *left[k + 1 :]] for part in (low, ~low)]
    raise AssertionError("one way is not halved")


class _Trial:
    """The plans of one shape against one claim."""

    def __init__(self, question: Chunks, below_ns: int) -> None:
        self.question, self.below_ns = question, below_ns
        self.instance, self.shape = question.instance, question.shape

    def count(self, left: Left) -> float:
        """Number of complete plans."""
        number = np.zeros(self.question.size)
        number[0] = 1
        for step, ways in zip(self.question.steps, left, strict=True):
            reached = number[ways.source]
            number = np.zeros(step.num_targets * self.question.size)
            np.add.at(number, ways.target, reached)
        return float(number.sum())

    def plans(self, left: Left) -> Plans:
        """All complete plans."""
        chosen = np.empty((0, 1), dtype=np.int64)
        state = np.zeros(1, dtype=np.int64)
        for ways in left:
            parent, way = np.nonzero(ways.source == state[:, None])
            chosen = np.concatenate([chosen[:, parent], way[None]])
            state = ways.target[way]
        sizes = np.stack([w.sizes[:, own] for w, own in zip(left, chosen, strict=True)], axis=1)
        sizes = sizes.reshape(self.shape.num_stages, -1)
        ends = np.concatenate([0 * sizes[:1], sizes.cumsum(axis=0)])
        return Plans(np.stack([w.step[own] for w, own in zip(left, chosen, strict=True)]), ends)

    def faster(self, left: Left) -> tuple[Plan, int] | None:
        """A plan among these below the claim, and its step time; None if there is none."""
        plans = self.plans(left)
        latest = np.max([self._times(plans, r) for r in self.question.lanes], axis=0)
        for i in np.flatnonzero(latest < self.below_ns).tolist():
            found = self._worked_out(plans, i)
            if found is not None:
                return found
        return None

    def _times(self, plans: Plans, r: int) -> Array:
        """[N] step time if lane r were alone; a lower bound."""
        graph = schedule_graph(
            self.shape.schedule, self.shape.pp, self.question.share, self.shape.vpp
        )
        size = max(1, MOST_TIMES // graph.num_operations)
        parts = [
            self._simulated(Plans(plans.steps[:, i : i + size], plans.ends[:, i : i + size]), r)
            for i in range(0, len(plans), size)
        ]
        return np.concatenate(parts)

    def _simulated(self, plans: Plans, r: int) -> Array:
        question, shape, order = self.question, self.shape, self.question.graph
        layers = plans.ends[:-1], plans.ends[1:]
        steps = list(zip(question.steps, plans.steps, strict=True))
        groups = np.tile([step.group[own, r] for step, own in steps], (shape.vpp, 1))
        forward, backward, _ = self.question.prover.stage_times(shape)
        sends = [step.send[own, r] for step, own in steps]
        around = [steps[0][0].back[plans.steps[0], r], *sends[1:]]
        into = np.stack(list(chain(sends, around * (shape.vpp - 1))))[1:]
        kinds = order.kind[plans.ends[1:-1]]
        send = np.take_along_axis(into, kinds[..., None], axis=2)[..., 0]
        blocking = self.instance.search.blocking_sends
        times = Times(forward[groups, *layers], backward[groups, *layers], send, blocking)
        graph = schedule_graph(shape.schedule, shape.pp, question.share, shape.vpp)
        end = simulate(graph, times)
        rows = np.stack([step.tail[own] for step, own in steps])
        tail, sync = (self._after(part, rows, plans.ends) for part in (order.tails, order.syncs))
        latest = ended(order, end[graph.last], rows, tail, sync)
        self._learn(graph, times, end, end[graph.last] + tail, latest)
        return latest

    def _after(self, values: list[Array], rows: Array, ends: Array) -> Array:
        """[p, N] of the chunks of every device, what comes once counted once."""
        table, own = np.stack(values), np.tile(rows, (self.shape.vpp, 1))
        once = table[own, 0, 0]
        each = table[own, ends[:-1], ends[1:]] - once
        whole: Array = once[: len(rows)] + each.reshape(-1, *rows.shape).sum(axis=0)
        return whole

    def _learn(
        self, graph: ScheduleGraph, times: Times, end: Array, done: Array, latest: Array
    ) -> None:
        """Keeps the critical path of the fastest plan that is no faster than the claim."""
        slow = np.where(latest >= self.below_ns, latest, NEVER)
        best = int(slow.argmin())
        if slow[best] < NEVER:
            device = int(done[:, best].argmax())
            path = trace(graph, times, end, np.array([best]), graph.last[[device]])
            self.question.keep(path, device)

    def _worked_out(self, plans: Plans, i: int) -> tuple[Plan, int] | None:
        """The plan, if it is below the claim with all costs, and fits."""
        steps = zip(self.question.steps, plans.steps[:, i].tolist(), strict=True)
        order = [group for step, own in steps for group in step.begins[own]]
        shares = [self.question.share] * self.shape.dp
        plan = self.question.prover.plan(self.shape, order, plans.ends[:, i].tolist(), shares)
        costs = Recount(self.instance, plan).costs()
        if (costs.memory_bytes > costs.limit_bytes).any():
            return None
        time_ns = step_time_ns(costs)
        return (plan, time_ns) if time_ns < self.below_ns else None
