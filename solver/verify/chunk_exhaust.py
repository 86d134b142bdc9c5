"""Every plan of a shape with several chunks per device that may be faster than a claimed bound.

The simulated times are lower bounds, exact but for links between zones and the last device's part
of transfers to the first: a plan with a shorter one is worked out again by `recount`.
"""

import numpy as np

from formulations.plan import Plan, Shape
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.chunks import Chunks
from solver.verify.clock import Clock
from solver.verify.device_ways import Left
from solver.verify.recount import Recount
from solver.verify.simulated import Outcome, Plans, PlanTimes, hunted, lower_half

#: Complete plans that are simulated rather than halved further.
FEW = 256


def exhaust_chunks(prover: Prover, shape: Shape, below_ns: int, clock: Clock) -> Outcome | None:
    """Whether any plan of the shape has a step time below this; None with too many node orders.

    Raises TimeUpError.
    """
    trial = _Trial(Chunks(prover, shape, clock), below_ns)
    everything = trial.question.everything(below_ns)
    if everything is None:
        return None
    return hunted(everything, trial.remaining, trial.halves, trial.faster)


class _Trial:
    """The plans of one shape against one claim."""

    def __init__(self, question: Chunks, below_ns: int) -> None:
        self.question, self.below_ns, self.shape = question, below_ns, question.shape
        self.times = PlanTimes(question.prover, self.shape, question.graph)

    def remaining(self, left: Left) -> Left | None:
        """What plans below the claim may use; None if there are none."""
        return self.question.remaining(left, self.below_ns)

    def halves(self, left: Left) -> list[Left]:
        """The device with most sizes of chunks cut in two: by layers in all, of a chunk, before."""
        if self._count(left) <= FEW:
            return []

        def variety(k: int) -> int:
            return len(np.unique(left[k].sizes, axis=1).T) * len(left) + len(left[k]) // len(left)

        for k in sorted(range(len(left)), key=variety, reverse=True):
            ways = left[k]
            columns = (ways.sizes.sum(axis=0), *ways.sizes, ways.before, ways.step)
            if (low := lower_half(columns)) is not None:
                return [[*left[:k], ways.take(half), *left[k + 1 :]] for half in (low, ~low)]
        raise AssertionError("one way is not halved")

    def _count(self, left: Left) -> float:
        """Number of complete plans."""
        number = np.zeros(self.question.size)
        number[0] = 1
        for step, ways in zip(self.question.graph.built, left, strict=True):
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
        share = self.question.share
        latest = np.max([self.times.of(plans, r, share) for r in self.question.lanes], axis=0)
        for i in np.flatnonzero(latest < self.below_ns).tolist():
            found = self._worked_out(plans, i)
            if found is not None:
                return found
        return None

    def _worked_out(self, plans: Plans, i: int) -> tuple[Plan, int] | None:
        """The plan, if it is below the claim with all costs, and fits."""
        steps = zip(self.question.graph.built, plans.steps[:, i].tolist(), strict=True)
        order = [group for step, own in steps for group in step.begins[own]]
        shares = [self.question.share] * self.shape.dp
        plan = self.question.prover.plan(self.shape, order, plans.ends[:, i].tolist(), shares)
        costs = Recount(self.question.instance, plan).costs()
        if (costs.memory_bytes > costs.limit_bytes).any():
            return None
        time_ns = step_time_ns(costs)
        return (plan, time_ns) if time_ns < self.below_ns else None
