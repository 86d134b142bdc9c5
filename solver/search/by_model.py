"""All shapes that bounds leave open by one model, CP-SAT's or MILP's: a second and a third witness.

The model is exact whatever gap is asked for, but looks for no plan that is within the gap of the
best one. What it proves of the objective bounds each of the shapes that it holds.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given, decisions_of, even_shares
from formulations.plan import Plan, Shape, simulable
from formulations.space.layouts import layouts
from solver.enumeration.engine import ShapeAnswer
from solver.graph.problem import Intervals
from solver.options import SolveOptions
from solver.result import ShapeRecord, objective_weight
from solver.search.critical_path import CutLoop
from solver.search.engine_solutions import Found
from solver.search.engines import Family, model_engine
from solver.search.enumeration import ShapeEngine, Stop, enumerate_shape
from solver.search.fathoming import Closer, Closing
from solver.search.paths import CutPool, OpenShape

#: Ways to lay out stages with degrees of their own that a model tells apart, of one shape.
MOST_LAYOUTS = 200

_log = logging.getLogger(__name__)


def collector(collected: list[CostTables]) -> ShapeEngine:
    """An engine for one shape that closes none: it keeps the costs that the model is made of.

    But shapes whose stages have degrees of their own, in too many ways or in none: these it
    enumerates.
    """

    def keep(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
        tables = intervals.tables
        if tables.by_place is not None:
            num_layouts = len(list(islice(layouts(tables.by_place), MOST_LAYOUTS + 1)))
            if not 0 < num_layouts <= MOST_LAYOUTS:
                return enumerate_shape(intervals, cutoff, gap, stop)
        if not stop() and simulable(tables.instance, tables.shape):
            collected.append(tables)
        return ShapeAnswer(None, None, False)

    return keep


def _layouts(tables: CostTables) -> list[Given]:
    """What is given of a shape: nothing; or the layout, for each that there is."""
    if tables.by_place is None:
        return [ALL_FREE]
    shares = even_shares(tables)
    return [Given(order=one, micro_batches=shares) for one in layouts(tables.by_place)]


class AtOnce:
    """One run of a model: the shapes that it is for, and how they stand."""

    def __init__(
        self,
        family: Family,
        closer: Closer,
        open_: list[tuple[CostTables, int]],
        incumbent: tuple[Plan, int] | None,
        pool: CutPool,
    ) -> None:
        self.family: Family = family
        self.closer = closer
        instance = closer.instance
        shapes = [
            OpenShape(tables, objective_weight(instance, tables.plan_shape), bound_ns, given)
            for tables, bound_ns in open_
            for given in _layouts(tables)
        ]
        best, start = None, None
        if incumbent is not None:
            plan, step_time_ns = incumbent
            best = step_time_ns * objective_weight(instance, plan.shape)
            same = [i for i, one in enumerate(shapes) if one.tables.plan_shape == plan.shape]
            known = [] if plan.shape.per_stage else same  # not told which layout it has
            start = [Found(i, decisions_of(instance, plan), step_time_ns) for i in known]
        first = start[0] if start else None
        self.loop = CutLoop(model_engine(family), shapes, closer.cutoffs.target, best, first, pool)

    def run(self, options: SolveOptions, stop: Stop, tell: Callable[[], None]) -> None:
        """Closes what it can."""
        loop = self.loop
        loop.run(replace(options, gap=0.0), stop, tell)
        if loop.trouble is not None:
            still = sum(map(loop.is_open, range(len(loop.shapes))))
            _log.warning("%s; %d shapes stay open", loop.trouble, still)

    def closings(self) -> list[Closing]:
        """The shapes that the model holds as they stand, with the best plan found."""
        held = {self.loop.shapes[index].tables.plan_shape for index in self.loop.model.held}
        parts = dict[Shape, list[int]]()
        for index, one in enumerate(self.loop.shapes):
            parts.setdefault(one.tables.plan_shape, []).append(index)
        return [self._closing(shape, own) for shape, own in parts.items() if shape in held]

    def _closing(self, shape: Shape, parts: list[int]) -> Closing:
        """Of a shape: a part for every layout of stages with degrees of their own, else one."""
        loop, found = self.loop, self.loop.found
        record = ShapeRecord(
            shape=shape,
            reason="open",
            proof=self.family,
            bound_ns=min(loop.bounds_ns[index] for index in parts),
        )
        own = found is not None and found.index in parts
        plan = None
        if found is not None and own:
            tables = loop.shapes[found.index].tables
            plan = found.decisions.plan(tables), found.step_time_ns
        if not any(map(loop.is_open, parts)):
            record = self._closed(record, loop.target_ns(parts[0]), own)
        return Closing(record, plan)

    def _closed(self, record: ShapeRecord, target_ns: int, has_best: bool) -> ShapeRecord:
        """No plan of the shape is below the target, it says."""
        if target_ns >= self.closer.cutoffs.refused(record.shape):
            return record.model_copy(update={"reason": "infeasible", "bound_ns": None})
        reason = "solved" if has_best else "bounded"
        return record.model_copy(update={"reason": reason, "bound_ns": target_ns})
