"""What a model's solution stands for: held against the plan space in integers, and simulated.

Nothing that an engine says of a plan is taken at its word. If its solution is no plan, or is faster
than the bound that comes with it, the engine is in trouble.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.costs.stage_costs import StageCosts
from formulations.costs.stage_places import placement_of
from formulations.decisions import Decisions
from solver.backends.outcome import Outcome
from solver.search.paths import CutPool, Harvest, HeldShapes, harvest
from solver.search.recheck import broken_rule


@dataclass(frozen=True)
class Found:
    """A plan of the open shape of this index, simulated."""

    index: int
    decisions: Decisions
    step_time_ns: int


class Trouble(Exception):
    """What an engine says cannot be."""


class Judge:
    """Of the solutions of one model. bounds_ns: what is proved of each shape; it may rise."""

    def __init__(self, model: HeldShapes, pool: CutPool, bounds_ns: Sequence[int]) -> None:
        self._model, self._pool, self._bounds_ns = model, pool, bounds_ns
        self._excluded: set[tuple[int, Decisions]] = set()
        self._stages: dict[int, StageCosts] = {}

    def exclude(self, index: int, decisions: Decisions) -> None:
        """A plan has been left out of the model: it is no solution any more."""
        self._excluded.add((index, decisions))

    def judge(self, outcome: Outcome) -> tuple[Found, Harvest] | None:
        """The solution as decisions, simulated; None without one. Trouble if it cannot be."""
        if outcome.trouble is not None:
            raise Trouble(outcome.trouble)
        if outcome.values is None:
            return None
        extracted = self._model.built.extract(outcome.values)
        if extracted is None:
            raise Trouble("the solution is fractional, or stands for no decisions")
        index, decisions = self._model.held[extracted[0]], extracted[1]
        if (broken := broken_rule(self._model.shapes[index].tables, decisions)) is not None:
            raise Trouble(f"the solution is no plan: {broken}")
        if (index, decisions) in self._excluded:
            raise Trouble("the solution has been excluded")
        known = self.simulated(index, decisions)
        weight, bound = self._model.weights[index], outcome.bound
        if bound is not None and bound > weight * known.step_time_ns:
            told = f"{known.step_time_ns} ns, bound {bound}"
            raise Trouble(f"the solution is faster than the bound: {told}")
        return Found(index, decisions, known.step_time_ns), known

    def simulated(self, index: int, decisions: Decisions) -> Harvest:
        """A plan; its paths and those of its neighbours are known from now on."""
        tables, shares = self._model.shapes[index].tables, self._model.shares.get(index, ())
        stages = self._stages.setdefault(index, StageCosts(tables))
        placement = placement_of(tables, decisions.order)
        known = harvest(stages, placement, decisions, shares, self._bounds_ns[index])
        self._pool.of(tables.shape).update(known.cuts)
        return known
