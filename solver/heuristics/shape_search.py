"""Local search within one shape: layers between stages, node orders, micro-batches per replica."""

from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from formulations.costs.placement import PlacementCosts
from formulations.costs.tables import CostTables
from solver.heuristics.fair_shares import near_shares
from solver.heuristics.moves import near_orders, near_splits, start_orders, turned_orders
from solver.heuristics.node_orders import Order, count_orders
from solver.heuristics.pool import PathPool
from solver.heuristics.shape_starts import ShapeStarts, State
from solver.heuristics.stages import Split
from solver.heuristics.trial import OrderTrial

Stop = Callable[[], bool]

#: Splits simulated at once in a descent.
TRIED_AT_ONCE = 16
#: Orders are followed up if their split is not slower than this, relative to the best one.
NEAR = 1.01
#: The most turns of one order.
TURNS = 64


class ShapeSearch:
    """Local search from the plans of one shape. `pool`: paths of its schedule, shared by shapes."""

    def __init__(self, tables: CostTables, pool: PathPool) -> None:
        self.starts = ShapeStarts(tables, pool)

    @property
    def nodes_per_stage(self) -> int:
        """Nodes that a stage takes, rounded, at least 1."""
        shape = self.starts.tables.shape
        return max(1, round(sum(shape.nodes_used) / shape.pp))

    @property
    def first_orders(self) -> list[Order]:
        """Orders to start from that the target runs: of the groups side by side if there are any.

        Else the same begun at other stages.
        """
        nodes_used = self.starts.tables.shape.nodes_used
        sided = [*filter(self.starts.runs, start_orders(nodes_used, self.nodes_per_stage))]
        turned = turned_orders(nodes_used, self.nodes_per_stage, TURNS) if not sided else []
        return sided or [*filter(self.starts.runs, turned)]

    def descend(self, state: State, stop: Stop) -> State:
        """No layer moved between two stages, nor micro-batch, shortens the step, unless stopped."""
        return self._descend(self.starts.placer.costs(state.order), state, stop)

    def _descend(self, placement: PlacementCosts, state: State, stop: Stop) -> State:
        state = self._best_split(placement, state, stop)
        while self.starts.uneven and not stop():
            found = self._best_shares(placement, state)
            if found.step_time_ns >= state.step_time_ns:
                break
            state = self._best_split(placement, found, stop)
        return state

    def _best_shares(self, placement: PlacementCosts, state: State) -> State:
        """The state, or the fastest with one micro-batch moved between two replicas."""
        split, best = np.array([state.split]), state
        for shares in near_shares(self.starts.stage_times(state, placement), state.shares):
            balance = self.starts.balance(state.order, shares)
            if balance.fits(split)[0]:
                found = self.starts.best(balance, placement, state.order, split)
                best = min(best, found, key=lambda one: one.step_time_ns)
        return best

    def _best_split(self, placement: PlacementCosts, state: State, stop: Stop) -> State:
        """No single layer moved between two stages shortens the step, unless stopped."""
        trial = OrderTrial(self.starts.balance(state.order, state.shares), placement)
        self.starts.best(trial.balance, placement, state.order, np.array([state.split]))
        tried: set[Split] = set()
        while not stop():
            near = near_splits(np.array(state.split))
            near = near[trial.balance.fits(near)]
            if not len(near):
                break
            bound = self.starts.pool.bound_ns(trial, near)
            ranked = near[np.argsort(bound, kind="stable")][: (bound < state.step_time_ns).sum()]
            hopeful = [split for split in map(tuple, ranked.tolist()) if split not in tried]
            if not hopeful:
                break
            chosen = np.array(hopeful[:TRIED_AT_ONCE])
            found = self.starts.best(trial.balance, placement, state.order, chosen)
            tried.update(hopeful[:TRIED_AT_ONCE])
            state = min(state, found, key=lambda one: one.step_time_ns)
        return state

    def improvements(
        self, state: State, random: Random, patience: int, stop: Stop
    ) -> Iterator[State]:
        """The best plan so far near a state, after every node order tried.

        Ends when so many tries in a row gave no faster one.
        """
        state = self.descend(state, stop)
        yield state
        if count_orders(self.starts.tables.shape.nodes_used) == 1:
            return
        seen, failures = {state.order}, 0
        near = near_orders(state.order, self.nodes_per_stage, random)
        while failures < patience and not stop():
            order = next(near)
            failures += 1
            new = order not in seen and self.starts.runs(order)
            found = self._tried(order, state, stop) if new else None
            seen.add(order)
            if found is not None and found.step_time_ns <= state.step_time_ns:
                failures = failures if found.step_time_ns == state.step_time_ns else 0
                state = found
                near = near_orders(state.order, self.nodes_per_stage, random)
            yield state

    def _tried(self, order: Order, state: State, stop: Stop) -> State | None:
        """The best plan of another order, if that looks worth a descent."""
        balance = self.starts.balance(order, state.shares)
        splits = self.starts.candidates(balance, state)
        if not len(splits):
            return None
        trial = OrderTrial(balance, self.starts.placer.costs(order))
        if self.starts.pool.bound_ns(trial, splits).min() > NEAR * state.step_time_ns:
            return None
        found = self.starts.best(balance, trial.placement, order, splits)
        fitted = self.starts.refitted(found, trial.placement) if self.starts.uneven else None
        if fitted is not None and fitted.step_time_ns < found.step_time_ns:
            found = fitted
        if found.step_time_ns > NEAR * state.step_time_ns:
            return None
        return self._descend(trial.placement, found, stop)
