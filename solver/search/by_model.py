"""All shapes that bounds leave open by one model, CP-SAT's or MILP's: a second and a third witness.

The model is exact whatever gap is asked for, but looks for no plan that is within the gap of the
best one. What it proves of the objective bounds each of the shapes that it holds.

An engine that counts in floats proves nothing alone: HiGHS has called models infeasible that have
plans. A shape is closed by what it says if exhaustive search, in integers, finds no plan either;
else it stays open, with the bound that was known before, and a line says so. So MILP closes a shape
wrongly only where both err, and is a witness still: of plans that exhaustive search misses.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given, decisions_of, even_shares
from formulations.plan import Shape, simulable
from formulations.space.layouts import layouts
from solver.enumeration.engine import ShapeAnswer
from solver.graph.problem import Intervals
from solver.options import SolveOptions
from solver.result import Reason, ShapeRecord, objective_weight
from solver.search.critical_path import CutLoop, Found
from solver.search.engines import Family, model_engine
from solver.search.enumeration import Stop, enumerate_shape
from solver.search.fathoming import Closer, Closing
from solver.search.incumbents import Incumbent
from solver.search.paths import CutPool, OpenShape

#: Ways to lay out stages with degrees of their own that a model tells apart, of one shape.
MOST_LAYOUTS = 200

_log = logging.getLogger(__name__)


class Collector:
    """An engine for one shape that closes none: it keeps the costs that the model is made of.

    But shapes whose stages have degrees of their own, in too many ways or in none: these it
    enumerates.
    """

    def __init__(self) -> None:
        self.tables = list[CostTables]()

    def __call__(self, intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
        """Nothing is known of the shape yet."""
        tables = intervals.tables
        if tables.by_place is not None:
            num_layouts = len(list(islice(layouts(tables.by_place), MOST_LAYOUTS + 1)))
            if not 0 < num_layouts <= MOST_LAYOUTS:
                return enumerate_shape(intervals, cutoff, gap, stop)
        if not stop() and simulable(tables.instance, tables.shape):
            self.tables.append(tables)
        return ShapeAnswer(None, None, False)


class AtOnce:
    """One run of a model: the shapes that it is for, and how they stand.

    bounds_ns: what is proved of each shape.
    """

    def __init__(
        self,
        family: Family,
        closer: Closer,
        open_: Sequence[CostTables],
        bounds_ns: Sequence[int],
        incumbent: Incumbent,
        pool: CutPool,
    ) -> None:
        self.family: Family = family
        self.closer = closer
        instance = closer.instance
        shapes = list[OpenShape]()
        for tables, bound_ns in zip(open_, bounds_ns, strict=True):
            price, givens = objective_weight(instance, tables.plan_shape), [ALL_FREE]
            if tables.by_place is not None:  # every layout is a part of its own
                shares = even_shares(tables)
                orders = layouts(tables.by_place)
                givens = [Given(order=order, micro_batches=shares) for order in orders]
            shapes += [OpenShape(tables, price, bound_ns, given) for given in givens]
        best, start = None, None
        if incumbent.found is not None:
            plan, step_time_ns = incumbent.found
            best = incumbent.objective
            named = [shape.tables.plan_shape for shape in shapes]
            if plan.shape in named and not plan.shape.per_stage:  # which does not tell its layout
                index = named.index(plan.shape)
                start = Found(index, decisions_of(instance, plan), step_time_ns)
        engine = model_engine(family)
        self.loop = CutLoop(engine, shapes, closer.cutoffs.target, best, start, pool)
        self.confirmed = engine.counts_whole  #: what the engine closes is closed
        self.doubtful = set[Shape]()  #: but these are not

    def rounds(self, options: SolveOptions, stop: Stop) -> Iterator[None]:
        """Closes what it can; between two rounds `closings` says how far it is."""
        loop = self.loop
        yield from loop.run(replace(options, gap=0.0), stop)
        if loop.trouble is not None:
            still_open = sum(map(loop.is_open, range(len(loop.shapes))))
            _log.warning("%s; %d shapes stay open", loop.trouble, still_open)
        elif not self.confirmed:
            self._confirm(stop)

    def _confirm(self, stop: Stop) -> None:
        """Asks exhaustive search for plans in the shapes that the engine says to have none."""
        for shape, indices in self._parts().items():
            if any(map(self.loop.is_open, indices)):
                continue
            target_ns = self.loop.target_ns(indices[0])
            intervals = Intervals(self.loop.shapes[indices[0]].tables)
            answer = enumerate_shape(intervals, target_ns, 0.0, stop)
            if answer.plan is not None or not answer.complete:
                self.doubtful.add(shape)
            if answer.plan is not None:
                doubt = f"none below {target_ns} ns where one of {answer.step_time_ns} ns is"
                _log.warning("numerical trouble: %s; a shape stays open", doubt)
        self.confirmed = True

    def _parts(self) -> dict[Shape, list[int]]:
        """Of a shape in the model: a part for every layout of stages with own degrees, else one."""
        parts, shapes = dict[Shape, list[int]](), self.loop.shapes
        in_model = {shapes[index].tables.plan_shape for index in self.loop.model.held}
        for index, part in enumerate(shapes):
            if part.tables.plan_shape in in_model:
                parts.setdefault(part.tables.plan_shape, []).append(index)
        return parts

    def closings(self) -> Iterator[Closing]:
        """The shapes that the model holds as they stand, with the best plan found."""
        loop = self.loop
        for shape, indices in self._parts().items():
            plan, bound_ns = None, min(loop.bounds_ns[index] for index in indices)
            if loop.found is not None and loop.found.index in indices:
                tables = loop.shapes[loop.found.index].tables
                plan = loop.found.decisions.plan(tables), loop.found.step_time_ns
            reason: Reason = "open"
            target_ns = loop.target_ns(indices[0])
            said_closed = not any(map(loop.is_open, indices))
            if said_closed and self.confirmed and shape not in self.doubtful:
                beyond_limits = target_ns >= self.closer.cutoffs.refused(shape)
                reason = "infeasible" if beyond_limits else "solved" if plan else "bounded"
                bound_ns = target_ns
            elif said_closed:
                bound_ns = min(loop.shapes[index].bound_ns for index in indices)
            record = ShapeRecord(
                shape=shape,
                reason=reason,
                proof=self.family,
                bound_ns=None if reason == "infeasible" else bound_ns,
            )
            yield Closing(record, plan)
