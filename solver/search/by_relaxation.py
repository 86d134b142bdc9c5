"""Closing a config of too many node orders: relaxations to one replica, plans that follow."""

from dataclasses import dataclass
from itertools import count
from random import Random

import numpy as np

from formulations.costs.placement import Placer
from formulations.plan import Plan
from formulations.space.slots import runs_order
from solver.bounds.node_classes import classes_of
from solver.bounds.surrogate_replica import Relaxation, SurrogateReplica, order_along
from solver.enumeration.engine import deepened, even_plan, solve_split
from solver.enumeration.enumerate import below
from solver.graph.placements import fixed_order, replica_classes
from solver.graph.problem import Intervals
from solver.heuristics.config_search import ConfigSearch, State
from solver.heuristics.stage_orders import with_stage_orders
from solver.heuristics.trial import PathPool
from solver.interrupt import Stop

#: Node orders tried in a row without success near one that follows a relaxation, if that is not
#: slower than this, relative to the best plan.
PATIENCE = 100
NEAR = 1.01
#: Moves that are worth asking whether to stop.
MOVES_PER_STOP = 100
#: The first trial time is below the target by this part of it, the last ones apart by that part.
FIRST, RESOLUTION = 16, 512


@dataclass
class ByRelaxation:
    """A config with too many node orders: bounds of one replica, and the best plan after them.

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
        """Bounds of at least this close the configuration."""
        return below(self.best, self.gap)

    def follow(self, groups: tuple[int, ...]) -> None:
        """Keeps the best plan of a node order that follows these groups, if it is better."""
        tables, config = self.intervals.tables, self.intervals.tables.config
        if not groups or groups == self.followed:
            return
        self.followed = groups
        order = order_along(tables, groups)
        if not runs_order(tables.instance, config, order):
            return
        placement = self.placer.costs(order)
        classes = replica_classes(placement, config.dp)
        even = [tables.num_micro_batches // config.dp] * len(classes)
        problem = fixed_order(self.intervals, placement, classes, even)
        outcome = solve_split(problem, int(NEAR * self.best), self.gap / 2, self.stop)
        if outcome.split is None or outcome.step_time_ns is None:
            return
        shares, split = (even[0],) * config.dp, tuple(outcome.split.tolist())
        state = State(order, shares, split, outcome.step_time_ns)
        search, moves = ConfigSearch(tables, PathPool()), count()

        def stop() -> bool:
            return next(moves) % MOVES_PER_STOP == 0 and self.stop()

        for better in search.improvements(state, Random(0), PATIENCE, stop):
            state = better
        state = with_stage_orders(search, state, Random(0), stop)
        if state.step_time_ns < self.best:
            self.best = state.step_time_ns
            self.plan = even_plan(tables, state.order, np.array(state.split))

    def run(self) -> bool:
        """Whether surrogate replicas close the configuration, by bisection of times.

        A high cutoff leaves many edges: what takes long below it is often refuted below lower ones.
        """
        replica = SurrogateReplica(self.intervals, self.placer, classes_of(self.intervals))
        high, failed = self.target, None
        while self.bound_ns < high and not self.stop():
            near = high - self.bound_ns <= high // RESOLUTION
            if near and failed is not None:
                break
            part = 2 if failed else 4
            trial = high - min((high - self.bound_ns) // part, high // FIRST)
            relaxation = Relaxation(replica, high if near else trial)
            reach_ns = self._reach_ns(relaxation)
            if reach_ns is None:
                self.bound_ns = relaxation.cutoff
            else:
                high, failed = min(relaxation.cutoff, reach_ns), relaxation
        if failed is not None:
            self.follow(failed.groups)
            self._solve(failed)
        return self.bound_ns >= self.target

    def _reach_ns(self, relaxation: Relaxation) -> int | None:
        """From here on surrogates refute no cutoff, as far as is known; None: they do this one.

        Where windows cannot tell, the best splits of one do.
        """
        if relaxation.refutes(self.stop):
            return None
        self.bound_ns = max(self.bound_ns, relaxation.bound_ns)
        if relaxation.reach_ns < relaxation.cutoff:
            return relaxation.reach_ns
        found_ns = self._solve(relaxation)
        return None if self.bound_ns >= relaxation.cutoff else found_ns or relaxation.cutoff

    def _solve(self, relaxation: Relaxation) -> int | None:
        """Step time of the best splits of a surrogate replica if found, with a bound and a plan.

        Half of the gap is for the relaxation, which then need not be solved to its end.
        """
        problem, cutoff = relaxation.problem, min(relaxation.cutoff, self.target)
        if problem is None or self.bound_ns >= cutoff:
            return None
        outcome = deepened(problem, self.bound_ns, cutoff, self.gap / 2, self.stop)
        self.bound_ns = max(self.bound_ns, min(outcome.bound_ns, cutoff))
        if outcome.arcs is not None:
            self.follow(problem.order(outcome.arcs.tolist()))
        return outcome.step_time_ns
