"""Closing one shape: infeasible, bounded or solved, over all node orders and shares."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from random import Random
from typing import Protocol

import numpy as np

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import CostTables
from formulations.decisions import even_shares
from formulations.plan import Plan, uniform_plan
from formulations.schedules import in_flight
from solver.enumeration.engine import SplitOutcome, solve_split
from solver.enumeration.enumerate import below
from solver.enumeration.placements import (
    ReplicaClass,
    fixed_order,
    free_order,
    lane_width,
    replica_classes,
)
from solver.enumeration.problem import Array, Intervals, SplitProblem
from solver.enumeration.relaxation import Relaxation, order_along
from solver.enumeration.shape_bound import shape_bound_ns
from solver.enumeration.shares import largest_share
from solver.enumeration.uneven import Uneven
from solver.enumeration.uneven_search import best_dealing
from solver.heuristics.orders import count_orders, node_orders
from solver.heuristics.pool import PathPool
from solver.heuristics.shape_search import ShapeSearch, State
from solver.search.distribute import least_vectors, shares

#: With more distinct node orders than these only the heuristic's are tried: the shape stays open.
ORDER_LIMIT = 20_000

#: Growth of the cutoff with which a relaxation is solved.
DEEPER = 1.04
#: Node orders tried in a row without success near one that follows a relaxation, if that is not
#: slower than this, relative to the best plan.
PATIENCE = 100
NEAR = 1.01
#: Groups with less difference in speed are first taken for one kind.
ALIKE = 0.02

Stop = Callable[[], bool]


@dataclass(frozen=True)
class ShapeAnswer:
    """Best plan below the cutoff, if any; `complete`: nothing else is, up to the gap.

    bound_ns: no other plan of the shape is faster; of use if not complete.
    """

    plan: Plan | None
    step_time_ns: int | None
    complete: bool
    bound_ns: int = 0


class ShapeEngine(Protocol):
    """An exact method for one shape."""

    def __call__(self, intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
        """The best plan of the shape with a step time below `cutoff`."""


def lacks_memory(intervals: Intervals) -> bool:
    """Whether no split fits even if every stage had the largest GPU used.

    Proof. Stage k holds no fewer micro-batches than with the least share of any replica, on a
    GPU of at most that memory; `ends` are the layers where a chain of k + 1 such stages can end.
    """
    tables = intervals.tables
    shape, instance = tables.shape, tables.instance
    even = instance.search.micro_batches == "even"
    least = tables.num_micro_batches // shape.dp if even else 1
    largest = max(
        (j for j, n in enumerate(shape.nodes_used) if n), key=lambda j: tables.capacity_bytes[j]
    )
    ends = np.zeros(tables.num_layers + 1, dtype=bool)
    ends[0] = True
    for k in range(shape.pp):
        held = in_flight(shape.schedule, shape.pp, k, least)
        ends = np.any(intervals.fits(largest, held)[ends], axis=0)
    return not ends[-1]


def _share_vectors(
    intervals: Intervals, placement: PlacementCosts, classes: list[ReplicaClass], cutoff: int
) -> Iterator[list[int]]:
    tables = intervals.tables
    total, dp = tables.num_micro_batches, tables.shape.dp
    if tables.instance.search.micro_batches == "even":
        yield [total // dp] * len(classes)
        return
    counts = [one.count for one in classes]
    most = [
        largest_share(
            fixed_order(intervals, placement, [one], [1]), intervals.room, total - dp + 1, cutoff
        )
        for one in classes
    ]
    speed = [
        int(sum(intervals.forward[j, 0, -1] + intervals.backward[j, 0, -1] for j in one.groups))
        for one in classes
    ]
    vectors = least_vectors(counts, most, total)
    yield from sorted(vectors, key=lambda v: max(m * s for m, s in zip(v, speed, strict=True)))


def enumerate_shape(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
    """All orders at once where that is possible, else a relaxation, then one after the other.

    Unlike shares bring nothing if all replicas stand on the same nodes at every stage.
    """
    tables = intervals.tables
    placer = Placer(tables)
    even = tables.instance.search.micro_batches == "even"
    alike = even or lane_width(tables) == tables.shape.dp
    problem = free_order(intervals, placer) if alike else None
    if problem is None:
        close = _relaxed if even else _uneven
        return close(intervals, placer, cutoff, gap, stop)
    found = solve_split(problem, cutoff, gap, stop)
    if found.arcs is None or found.split is None:
        return ShapeAnswer(None, None, found.complete, found.bound_ns)
    order = problem.order(found.arcs.tolist())
    plan = _even_plan(tables, order, found.split)
    return ShapeAnswer(plan, found.step_time_ns, found.complete, found.bound_ns)


def _uneven(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ShapeAnswer:
    """By bounds; then lane by lane where that is exact, else one order after the other."""
    tables, target = intervals.tables, below(cutoff, gap)
    lanes = Uneven(intervals, placer)
    bound_ns = 0 if lanes.exact else shape_bound_ns(intervals, target)
    left = lanes.thinned(lanes.everything(target), target, stop) if bound_ns < target else None
    if left is None:
        return ShapeAnswer(None, None, True, target)
    bound_ns = lanes.bound_ns(bound_ns, target, left, stop)
    if not lanes.exact:
        return replace(_one_by_one(intervals, placer, cutoff, gap, stop), bound_ns=bound_ns)
    answer = best_dealing(lanes, cutoff, gap, stop, left)
    if answer.found is None:
        bound_ns = target if answer.complete else bound_ns
        return ShapeAnswer(None, None, answer.complete, bound_ns)
    order, split, shares, step_time_ns = astuple(answer.found)
    plan = uniform_plan(tables.instance, tables.shape, order, split, shares)
    return ShapeAnswer(plan, step_time_ns, answer.complete, bound_ns)


def _even_plan(tables: CostTables, order: Sequence[int], split: Array) -> Plan:
    return uniform_plan(tables.instance, tables.shape, order, split.tolist(), even_shares(tables))


def _deepened(
    problem: SplitProblem, bound_ns: int, cutoff: int, gap: float, stop: Stop
) -> SplitOutcome:
    """As `solve_split`, by cutoffs that grow from a bound.

    A high cutoff leaves many edges, so what the bounds do not refute is not solved with it at once.
    """
    trial = min(bound_ns, cutoff)
    found = SplitOutcome(None, None, None, trial, trial == cutoff)
    while found.arcs is None and trial < cutoff and not stop():
        trial = min(cutoff, int(trial * DEEPER) + 1)
        found = solve_split(problem, _above(trial, gap), gap, stop)
        if not found.complete:
            break
    return replace(found, bound_ns=max(found.bound_ns, bound_ns))


def _above(time_ns: int, gap: float) -> int:
    """What `time_ns` is below by the gap, see `below`."""
    return math.ceil(time_ns / (1 - gap))


@dataclass
class _ByRelaxation:
    """A shape with too many node orders: the bound of one replica, and plans that follow it."""

    intervals: Intervals
    placer: Placer
    gap: float
    stop: Stop
    best: int  #: step times below this are of interest
    bound_ns: int = 0
    plan: Plan | None = None
    followed: tuple[int, ...] = ()

    @property
    def target(self) -> int:
        """Bounds of at least this close the shape."""
        return below(self.best, self.gap)

    def follow(self, groups: tuple[int, ...]) -> None:
        """Keeps the best plan of a node order that follows these groups, if it is better."""
        tables, shape = self.intervals.tables, self.intervals.tables.shape
        if not groups or groups == self.followed:
            return
        self.followed = groups
        order = order_along(tables, groups)
        placement = self.placer.costs(order)
        classes = replica_classes(placement, shape.dp)
        even = [tables.num_micro_batches // shape.dp] * len(classes)
        problem = fixed_order(self.intervals, placement, classes, even)
        found = solve_split(problem, int(NEAR * self.best), self.gap / 2, self.stop)
        if found.split is None or found.step_time_ns is None:
            return
        shares, split = (even[0],) * shape.dp, tuple(found.split.tolist())
        state = State(order, shares, split, found.step_time_ns)
        search = ShapeSearch(tables, PathPool())
        for better in search.improvements(state, Random(0), PATIENCE, self.stop):
            state = better
        if state.step_time_ns < self.best:
            self.best = state.step_time_ns
            self.plan = _even_plan(tables, state.order, np.array(state.split))

    def close(self, apart: float) -> bool:
        """Whether the light replicas close the shape, if groups that are `apart` are told apart."""
        relaxation = Relaxation(self.intervals, self.placer, apart)
        if relaxation.thin(self.target):
            self.bound_ns = self.target
            return True
        for counted in (False, True):
            for weighed in relaxation.weightings:
                if self.stop():
                    return False
                relaxation.closes(weighed, self.target, self.stop, counted=counted)
                self.bound_ns = max(self.bound_ns, relaxation.bound_ns)
                if self.bound_ns < self.target:
                    self.follow(relaxation.groups)
                if self.bound_ns >= self.target:
                    return True
        return self._solved(relaxation)

    def _solved(self, relaxation: Relaxation) -> bool:
        """Whether the best splits of the light replica with the highest bound close the shape.

        Half of the gap is for the relaxation, which then need not be solved to its end.
        """
        problem = relaxation.problem
        if problem is None:
            return False
        found = _deepened(problem, self.bound_ns, self.target, self.gap / 2, self.stop)
        self.bound_ns = max(self.bound_ns, found.bound_ns)
        if found.arcs is not None:
            self.follow(problem.order(found.arcs.tolist()))
        return self.bound_ns >= self.target

    def answer(self, complete: bool) -> ShapeAnswer:
        """What is known."""
        time_ns = None if self.plan is None else self.best
        return ShapeAnswer(self.plan, time_ns, complete, self.bound_ns)


def _relaxed(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ShapeAnswer:
    """By one replica on groups of unlike speed, then on all, and if that is not enough more."""
    search = _ByRelaxation(intervals, placer, gap, stop, cutoff)
    if search.close(ALIKE) or (not stop() and search.close(0.0)):
        return search.answer(complete=True)
    if count_orders(intervals.tables.shape.nodes_used) > ORDER_LIMIT:
        return search.answer(complete=False)
    rest = _one_by_one(intervals, placer, search.best, gap, stop)
    bound_ns = max(rest.bound_ns, search.bound_ns)
    if rest.plan is not None:
        return replace(rest, bound_ns=bound_ns)
    return replace(search.answer(rest.complete), bound_ns=bound_ns)


def _one_by_one(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ShapeAnswer:
    """Every order and share vector through `solve_split`, with the best time as cutoff."""
    tables = intervals.tables
    shape = tables.shape
    plan: Plan | None = None
    best = cutoff
    complete = count_orders(shape.nodes_used) <= ORDER_LIMIT
    for order in node_orders(shape.nodes_used, ORDER_LIMIT):
        placement = placer.costs(order)
        classes = replica_classes(placement, shape.dp)
        for vector in _share_vectors(intervals, placement, classes, below(best, gap)):
            if stop():
                return ShapeAnswer(plan, best if plan else None, False)
            problem = fixed_order(intervals, placement, classes, vector)
            found = solve_split(problem, best, gap, stop)
            complete &= found.complete
            if found.split is not None and found.step_time_ns is not None:
                best = found.step_time_ns
                counts = shares(classes, vector, tables.num_micro_batches)
                plan = uniform_plan(tables.instance, shape, order, found.split.tolist(), counts)
    return ShapeAnswer(plan, best if plan else None, complete)
