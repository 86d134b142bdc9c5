"""Closing a shape with too many node orders: relaxations to one replica, plans that follow them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, product
from random import Random

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, even_shares
from formulations.plan import Plan
from solver.bounds.replica_relaxation import MOST_EDGES, Relaxation, order_along
from solver.enumeration.engine import deepened, solve_split
from solver.enumeration.enumerate import below
from solver.heuristics.blocks import with_blocks
from solver.heuristics.pool import PathPool
from solver.heuristics.shape_search import ShapeSearch
from solver.heuristics.shape_starts import State
from solver.layered.placements import fixed_order, replica_classes
from solver.layered.problem import Array, Intervals

#: Node orders tried in a row without success near one that follows a relaxation, if that is not
#: slower than this, relative to the best plan.
PATIENCE = 100
NEAR = 1.01
#: Moves that are worth asking whether to stop.
MOVES_PER_STOP = 100
#: Groups with less difference in speed are first taken for one kind.
ALIKE = 0.02

Stop = Callable[[], bool]


def even_plan(tables: CostTables, order: Sequence[int], split: Array) -> Plan:
    """All replicas with the same split and share."""
    return Decisions(tuple(order), tuple(split.tolist()), even_shares(tables)).plan(tables)


def _seldom(stop: Stop) -> Stop:
    """Asks once for many times: moves are tried much faster than relaxations."""
    asked = count()
    return lambda: next(asked) % MOVES_PER_STOP == 0 and stop()


@dataclass
class ByRelaxation:
    """A shape with too many node orders: bounds of one replica, and the best plan after them.

    best: step times below this are of interest, that of the plan if there is one. bound_ns: no
    plan is faster.
    """

    intervals: Intervals
    placer: Placer
    gap: float
    stop: Stop
    best: int
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
        search, stop = ShapeSearch(tables, PathPool()), _seldom(self.stop)
        for better in search.improvements(state, Random(0), PATIENCE, stop):
            state = better
        self._keep(with_blocks(search, state, Random(0), stop))

    def run(self) -> bool:
        """Whether relaxations close the shape: of groups of unlike speed, then of all."""
        relaxation = Relaxation(self.intervals, self.placer, ALIKE)
        if self._closes(relaxation):
            return True
        if not relaxation.merged or self.stop():
            return False
        return self._closes(Relaxation(self.intervals, self.placer))

    def _closes(self, relaxation: Relaxation) -> bool:
        """Whether light replicas or the best splits of one do."""
        if relaxation.thin(self.target):
            self.bound_ns = self.target
            return True
        return self._lit(relaxation) or self._solved(relaxation)

    def _lit(self, relaxation: Relaxation) -> bool:
        """Whether light replicas close the shape."""
        tries = product(MOST_EDGES, (False, True), relaxation.weightings)
        for most, counted, weighed in tries:
            if self.stop():
                return False
            relaxation.closes(self.target, weighed, self.stop, counted=counted, most=most)
            self.bound_ns = max(self.bound_ns, relaxation.bound_ns)
            if self.bound_ns >= self.target:
                return True
            self.follow(relaxation.groups)
        return False

    def _keep(self, state: State) -> None:
        """The plan of a state if it is the best so far."""
        if state.step_time_ns < self.best:
            self.best = state.step_time_ns
            self.plan = even_plan(self.intervals.tables, state.order, np.array(state.split))

    def _solved(self, relaxation: Relaxation) -> bool:
        """Whether the best splits of the light replica with the highest bound close the shape.

        Half of the gap is for the relaxation, which then need not be solved to its end.
        """
        problem = relaxation.problem
        if problem is None:
            return False
        found = deepened(problem, self.bound_ns, self.target, self.gap / 2, self.stop)
        self.bound_ns = max(self.bound_ns, min(found.bound_ns, self.target))
        if found.arcs is not None:
            self.follow(problem.order(found.arcs.tolist()))
        return self.bound_ns >= self.target
