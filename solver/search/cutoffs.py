"""From which step time on a plan of a shape is of no use: limits, the incumbent, the gap."""

import math
import sys
from dataclasses import dataclass
from functools import cached_property

from formulations.instance import Instance
from formulations.plan import Shape
from solver.result import ShapeRecord, max_step_time_ns, objective_weight
from solver.search.closing import MOST_GAP
from solver.search.shape_answers import Question

#: Above any step time in ns: more than twice what `formulations.costs.magnitude` lets through.
ANY_TIME = 1 << 56
#: Of a product of floats and its quotient, relative; below a ns wherever floats count whole ones.
NOISE = 4 * sys.float_info.epsilon


@dataclass(frozen=True)
class Cutoffs:
    """Those of one instance to one gap; `best` is the objective of the incumbent, None without."""

    instance: Instance
    gap: float

    @cached_property
    def _scales(self) -> dict[tuple[int, ...], tuple[int, float]]:
        """Shortest step time beyond the limits and objective per ns, by the nodes used."""
        return {}

    def _scale(self, shape: Shape) -> tuple[int, float]:
        known = self._scales.get(shape.nodes_used)
        if known is None:
            longest = max_step_time_ns(self.instance, shape)
            refused = ANY_TIME if longest is None else min(longest + 1, ANY_TIME)
            known = refused, objective_weight(self.instance, shape)
            self._scales[shape.nodes_used] = known
        return known

    def refused(self, shape: Shape) -> int:
        """Step times of at least this are beyond the limits, or any."""
        return self._scale(shape)[0]

    def objective(self, shape: Shape, step_time_ns: int) -> float:
        """Of a plan of a shape."""
        return step_time_ns * self._scale(shape)[1]

    def _reached(self, shape: Shape, best: float | None, gap: float) -> int:
        """Step times of at least this are no better than the incumbent, up to a gap.

        On nodes without rent any plan is better than an incumbent that costs something.
        """
        _, weight = self._scale(shape)
        if best is None or not weight:
            return 0 if best == 0 else ANY_TIME
        return min(ANY_TIME, math.ceil(best * (1 - gap) * (1 - NOISE) / weight))

    def target(self, shape: Shape, best: float | None) -> int:
        """Bounds of at least this close a shape. The gap is not taken off a limit."""
        return min(self.refused(shape), self._reached(shape, best, self.gap))

    def beyond(self, objective: float, best: float | None) -> bool:
        """Whether nothing with this objective or more can beat the incumbent."""
        return best is not None and objective >= best * (1 - self.gap)

    def question(self, shape: Shape, best: float | None, effort: int | None) -> Question:
        """Below which step time to look for the best plan, and to what gap. A limit has none."""
        refused, reached = self.refused(shape), self._reached(shape, best, 0.0)
        if refused < reached:
            return Question(refused, 0.0, effort)
        return Question(reached, min(self.gap, MOST_GAP), effort)

    def reviewed(self, record: ShapeRecord, best: float | None) -> ShapeRecord:
        """The record of a shape, closed after all if a later incumbent has reached its bound."""
        bound_ns = record.bound_ns
        if record.reason != "open" or best is None or bound_ns is None:
            return record
        closed = bound_ns >= self.target(record.shape, best)
        return record.model_copy(update={"reason": "bounded"}) if closed else record

    def stated(self, record: ShapeRecord, best: float | None, bound: float | None) -> ShapeRecord:
        """The record, with no higher a bound than the outcome rests on, its own reason or `bound`.

        So a plan file claims no more than it has to, and is proved again sooner.
        """
        weight = self._scale(record.shape)[1]
        if record.bound_ns is None or bound is None or not weight:
            return record
        needed = math.ceil(bound / weight)
        if record.reason == "bounded":
            needed = max(needed, self.target(record.shape, best))
        return record.model_copy(update={"bound_ns": min(record.bound_ns, needed)})
