"""Piper's problem exactly: the least time per sample, by bisection over the times of stages.

For a trial time a stage with given degrees has one property left, the largest sum s at which it
is fast enough. With least[S][s] = fewest GPUs that run suffix S with replications that add up to
s, a stage from S to S' with replication d gives least[S][s] <= least[S'][s - d] + tp d for every
s up to its largest. Some plan is within the trial time iff some least[all][s] <= K. A plan's time
is one of its stages' times, so the least of these at which there is a plan is the optimum.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from bench.piper_problem import Choices, Ints, ThroughputProblem, choices, suffixes


@dataclass(frozen=True)
class ThroughputStage:
    """Operators as a bit mask, and degrees."""

    operators: int
    tp: int
    dp: int


@dataclass(frozen=True)
class ThroughputPlan:
    """Stages in the order of the data; `time_ps`: of a sample, in the slowest."""

    time_ps: int
    stages: tuple[ThroughputStage, ...]


class ThroughputSearch:
    """All choices of a problem, and what a trial time leaves of them."""

    def __init__(self, problem: ThroughputProblem) -> None:
        self.problem = problem
        self.known = list(choices(problem))
        self._order = suffixes(problem)
        self._times, self._longest, self._starts = self._flat()

    def _flat(self) -> tuple[Ints, Ints, Ints]:
        if not self.known:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none
        times = np.concatenate([one.time_ps for one in self.known])
        longest = np.concatenate([one.longest for one in self.known])
        sizes = [len(one.time_ps) for one in self.known]
        return times, longest, np.cumsum([0, *sizes[:-1]])

    def solve(self) -> ThroughputPlan | None:
        """The best plan, proved; None if none fits."""
        times = np.unique(self._times)
        least = bisect_left(times, True, key=lambda time: self._least(int(time)) is not None)
        return self._plan(int(times[least])) if least < len(times) else None

    def _within(self, time_ps: int) -> list[tuple[Choices, int]]:
        """Choices that are fast enough, and up to which sum."""
        if not self.known:
            return []
        reach = np.maximum.reduceat(
            np.where(self._times <= time_ps, self._longest, 0), self._starts
        )
        return [(self.known[n], int(reach[n])) for n in np.flatnonzero(reach)]

    def _least(self, time_ps: int) -> dict[int, Ints] | None:
        """Fewest GPUs per suffix and sum, K + 1 for more than K; None if there is no plan."""
        gpus = self.problem.gpus
        least = {s: np.full(self.problem.longest + 1, gpus + 1) for s in (0, *self._order)}
        least[0][0] = 0
        for one, reach in self._within(time_ps):  # by suffix after: those inside it are done
            own, rest = least[one.before][one.dp : reach + 1], least[one.after]
            np.minimum(own, rest[: reach + 1 - one.dp] + one.tp * one.dp, out=own)
        return least if least[self.problem.everything].min() <= gpus else None

    def _plan(self, time_ps: int) -> ThroughputPlan:
        least = self._least(time_ps)
        assert least is not None
        within = self._within(time_ps)
        suffix, stages = self.problem.everything, list[ThroughputStage]()
        total = int(least[suffix].argmin())
        while suffix:
            used = least[suffix][total]
            one = next(
                one
                for one, reach in within
                if one.before == suffix
                and one.dp <= total <= reach
                and least[one.after][total - one.dp] + one.tp * one.dp == used
            )
            stages.append(ThroughputStage(suffix & ~one.after, one.tp, one.dp))
            suffix, total = one.after, total - one.dp
        return ThroughputPlan(time_ps, tuple(stages))

    def better_than(self, time_ps: int) -> list[Choices]:
        """The choices of plans with a shorter time: of each the one that allows the largest sum."""
        return [
            replace(one, time_ps=one.time_ps[one.time_ps < time_ps][-1:], longest=np.array([reach]))
            for one, reach in self._within(time_ps - 1)
        ]
