"""The search over the clusters of a family: those that may change the front most come first.

Every cluster has a lower bound of its step time. It is closed once that is at least what makes its
plans dominated, up to the gap; its own best plan counts as one that dominates the others.
"""

from collections.abc import Callable, Iterable

from formulations.instance.family import Counts, Family
from solver.clusters.front import Front
from solver.clusters.measure import Measure
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.options import SolveOptions
from solver.result import NOISE, Termination
from solver.search.incumbents import Clock


class FamilySearch:
    """State of one search. bounds: of the step time in ns of every cluster; None: no plan.

    closings: of the clusters that were searched. Those of an earlier search are taken as `known`;
    every new one is told at once.
    """

    def __init__(
        self,
        family: Family,
        measure: Measure,
        options: SolveOptions,
        known: Iterable[MemberClosing] = (),
        tell: Callable[[MemberClosing], None] = lambda closing: None,
    ) -> None:
        self.family, self.options, self.tell = family, options, tell
        self.clock = Clock(options.time_limit_s)
        self.front = Front(measure)
        self.members = Members(family, options)
        self.bounds = self.members.bounds_ns()
        self.closings: dict[Counts, MemberClosing] = {}
        for closing in known:
            self.take(closing)

    def is_open(self, counts: Counts) -> bool:
        """Whether the cluster may have a plan that is not dominated, beyond the gap."""
        bound_ns, cutoff_ns = self.bounds[counts], self.front.cutoff_ns(counts)
        return bound_ns is not None and bound_ns < cutoff_ns * (1 - self.options.gap) * (1 - NOISE)

    def next_task(self) -> MemberTask | None:
        """The open cluster not yet searched that may go furthest beyond the front."""
        left = [
            MemberTask(counts, self.front.cutoff_ns(counts))
            for counts in self.bounds
            if counts not in self.closings and self.is_open(counts)
        ]
        return min(left, key=self._rank, default=None)

    def _rank(self, task: MemberTask) -> tuple[float, ...]:
        bound_ns = self.bounds[task.counts] or 0
        time, cost = self.front.measure.figures(task.counts, bound_ns)
        return (bound_ns / task.cutoff_ns, time * cost, *task.counts)

    def take(self, closing: MemberClosing) -> None:
        """Keeps what became known of a cluster."""
        counts = closing.counts
        self.closings[counts] = closing
        self.bounds[counts] = closing.bound_ns
        self.front.offer(counts, closing.found)

    def run(self) -> Termination:
        """Closes clusters until none is open or time is up."""
        while task := self.next_task():
            if self.clock.out_of_time():
                return Termination.TIME_LIMIT
            limit_s = self.clock.limit_s
            left_s = None if limit_s is None else max(0.0, limit_s - self.clock.elapsed_s)
            closing = self.members.close(task, left_s)
            self.take(closing)
            self.tell(closing)
            if closing.interrupted:
                return Termination.INTERRUPTED
        if any(self.is_open(counts) for counts in self.bounds):
            return Termination.UNFINISHED
        return Termination.CLOSED
