"""Stages of least time per sample: Piper's problem, every stage with degrees of its own.

Tarnawski, Narayanan and Phanishayee (Piper, NeurIPS 2021, sections 3 and 4), as its public code
counts. A witness for our own plans, which minimise a simulated step.

Sets. Operators of a directed graph; suffixes: sets with every operator that reads from them.
Parameters. GPUs K, samples N per step, memory M, bandwidth; per operator and tensor degree the
ways to run it (as it is, or with recomputation); per edge the bytes that both sides move.
Decisions. A chain of suffixes, from all operators down to none: the difference of two neighbours
is a stage. Per stage a tensor degree, a replication d that divides N, and a way per operator.
Objective. The longest time per sample of a stage: its operators' time and its cut edges' bytes
(2 x, forward and back) over d, and 4 (d - 1) w / (d N) bytes of w bytes of weights.
Constraints.
(1) the degrees of all stages add up to at most K GPUs.
(2) with s the sum of d of a stage and of all after it, s <= N.
(3) the operators of a stage hold A ceil(s / d) + B bytes, at most M.
Size. O(suffixes^2 * degrees * (operators + 1)) choices, where operators that are alike merge.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

Ints = NDArray[np.int64]

PS_PER_S = 10**12


@dataclass(frozen=True)
class Way:
    """How an operator is run: time of a sample there and back; bytes held per sample and always."""

    time_ps: int
    weights_bytes: int
    sample_bytes: int  #: A
    fixed_bytes: int  #: B


@dataclass(frozen=True)
class Edge:
    """What an operator hands to another: bytes that either side moves if it is cut, by degree."""

    source: int
    target: int
    source_bytes: Mapping[int, int]
    target_bytes: Mapping[int, int]


@dataclass(frozen=True)
class ThroughputProblem:
    """`operators`: ways of each, by tensor degree; suffixes are bit masks over them."""

    operators: tuple[Mapping[int, tuple[Way, ...]], ...]
    edges: tuple[Edge, ...]
    gpus: int
    samples: int
    memory_bytes: int
    bandwidth_bytes_per_s: float

    @property
    def everything(self) -> int:
        """The suffix of all operators."""
        return (1 << len(self.operators)) - 1

    @property
    def longest(self) -> int:
        """The most that replications can add up to."""
        return min(self.gpus, self.samples)

    @cached_property
    def readers(self) -> list[int]:
        """Per operator, who reads from it."""
        masks = [0] * len(self.operators)
        for edge in self.edges:
            masks[edge.source] |= 1 << edge.target
        return masks

    def grown(self, suffix: int) -> Iterator[tuple[int, int]]:
        """Operators that may join a suffix, and the suffixes that they make."""
        for operator, readers in enumerate(self.readers):
            if not suffix >> operator & 1 and readers & ~suffix == 0:
                yield operator, suffix | 1 << operator

    def cut_bytes(self, stage: int, tp: int) -> int:
        """What the cut edges of a stage move per sample, forward and back."""
        moved = 0
        for edge in self.edges:
            leaves, enters = stage >> edge.source & 1, stage >> edge.target & 1
            if leaves != enters:
                moved += 2 * (edge.source_bytes if leaves else edge.target_bytes)[tp]
        return moved


@dataclass(frozen=True)
class Choices:
    """Ways to run a stage with given degrees: `longest` = the largest s that memory allows.

    Ascending in `time_ps` and `longest`, rounded up and down. All else is dominated.
    """

    before: int  #: suffix with the stage
    after: int  #: suffix without
    tp: int
    dp: int
    time_ps: Ints
    longest: Ints


def _joined(totals: Ints, ways: tuple[Way, ...]) -> Ints:
    """[n, 4] totals of a stage with one more operator; the fastest of those with equal bytes."""
    rows = [[w.weights_bytes, w.sample_bytes, w.fixed_bytes, w.time_ps] for w in ways]
    sums = (totals[:, None] + np.array(rows, dtype=np.int64)).reshape(-1, 4)
    sums = sums[np.lexsort(sums.T[::-1])]
    new = np.ones(len(sums), dtype=bool)
    new[1:] = (sums[1:, :3] != sums[:-1, :3]).any(axis=1)
    return sums[new]


def _stages(problem: ThroughputProblem, after: int) -> Iterator[tuple[int, dict[int, Ints]]]:
    """Suffixes above one, with the totals of what lies between, by tensor degree."""
    degrees = {tp for ways in problem.operators for tp in ways}
    begun = {tp: np.zeros((1, 4), dtype=np.int64) for tp in sorted(degrees)}
    reached, todo = {after}, [(after, begun)]
    while todo:
        suffix, totals = todo.pop()
        for operator, before in problem.grown(suffix):
            if before not in reached:
                reached.add(before)
                ways = problem.operators[operator]
                own = {tp: _joined(rows, ways[tp]) for tp, rows in totals.items() if tp in ways}
                todo.append((before, own))
                yield before, own


def suffixes(problem: ThroughputProblem) -> list[int]:
    """All suffixes but the empty one, each after those inside it."""
    return sorted((before for before, _ in _stages(problem, 0)), key=int.bit_count)


def _trimmed(
    problem: ThroughputProblem, totals: Ints, cut_bytes: int
) -> Callable[[int], tuple[Ints, Ints]]:
    """Undominated times and largest sums of a stage, by its replication."""
    weights, held, fixed, times = totals.T
    room = problem.memory_bytes - fixed
    samples = np.where(held > 0, room // np.maximum(held, 1), problem.samples)
    samples = np.where(room < 0, 0, np.minimum(samples, problem.samples))
    byte_ps = PS_PER_S / problem.bandwidth_bytes_per_s

    def by_replication(dp: int) -> tuple[Ints, Ints]:
        resync = 4 * (dp - 1) * weights / problem.samples
        exact = (times + (cut_bytes + resync) * byte_ps) / dp
        time_ps = np.ceil(exact).astype(np.int64)
        longest = np.minimum(samples * dp, problem.longest)  # (2), (3)
        order = np.lexsort((-longest, time_ps))
        best = np.maximum.accumulate(longest[order])
        new = np.diff(best, prepend=dp - 1) > 0  # a stage counts itself: s >= d
        return time_ps[order][new], best[new]

    return by_replication


def choices(problem: ThroughputProblem) -> Iterator[Choices]:
    """All stages with all degrees that fit, by the suffix after them, from small to large."""
    divisors = [d for d in range(1, problem.longest + 1) if problem.samples % d == 0]
    for after in [0, *suffixes(problem)[:-1]]:
        for before, totals in _stages(problem, after):
            for tp, rows in totals.items():
                trimmed = _trimmed(problem, rows, problem.cut_bytes(before & ~after, tp))
                for dp in divisors:
                    if tp * dp <= problem.gpus:
                        times, longest = trimmed(dp)
                        if len(times):
                            yield Choices(before, after, tp, dp, times, longest)


class PiperModel:
    """Piper's problem as one model: see `bench.piper_problem` for its sets and parameters.

    Variables. chosen[c]: a stage, its degrees and its ways; sum[S]: what the replications of the
    stages inside suffix S add up to; time.
    Constraints.
    (1) one stage begins at all operators, and at every other suffix as many as end there.
    (2) GPUs of the chosen stages add up to at most K.
    (3) sum[before] >= sum[after] + d, and <= the largest sum that the choice allows.
    (4) time >= the time of every chosen stage.
    Size. O(choices) literals and rows.
    """

    def __init__(self, problem: ThroughputProblem, known: Sequence[Choices]) -> None:
        self.model = model = cp_model.CpModel()
        begin: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        end: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        gpus: list[int] = []
        literals: list[cp_model.IntVar] = []
        largest_ps = max((int(one.time_ps[-1]) for one in known), default=0)
        self.time = model.new_int_var(0, largest_ps, "time")
        ends = {suffix for one in known for suffix in (one.before, one.after)}
        sums = {suffix: model.new_int_var(0, problem.longest, f"sum[{suffix}]") for suffix in ends}
        for one in known:
            for time_ps, longest in zip(one.time_ps, one.longest, strict=True):
                literal = model.new_bool_var("")
                begin[one.before].append(literal)
                end[one.after].append(literal)
                literals.append(literal)
                gpus.append(one.tp * one.dp)
                after, before = sums[one.after], sums[one.before]
                model.add(before >= after + one.dp).only_enforce_if(literal)  # (3)
                model.add(before <= int(longest)).only_enforce_if(literal)
                model.add(self.time >= int(time_ps) * literal)  # (4)
        model.add_exactly_one(begin[problem.everything])  # (1)
        for suffix in ends - {0, problem.everything}:
            total = cp_model.LinearExpr.sum
            model.add(total(begin[suffix]) == total(end[suffix]))
        model.add(cp_model.LinearExpr.weighted_sum(literals, gpus) <= problem.gpus)  # (2)
        model.minimize(self.time)


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
    """Piper's problem exactly: the least time per sample, by bisection over the times of stages.

    For a trial time a stage with given degrees has one property left, the largest sum s at which it
    is fast enough. With least[S][s] = fewest GPUs that run suffix S with replications that add up
    to s, a stage from S to S' with replication d gives least[S][s] <= least[S'][s - d] + tp d for
    every s up to its largest. Some plan is within the trial time iff some least[all][s] <= K. A
    plan's time is one of its stages' times, so the least of these at which there is a plan is the
    optimum.
    """

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
