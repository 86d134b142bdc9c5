"""The search over shapes: cheapest bound first, until no open shape can beat the incumbent.

Every shape gets a closed-form bound; shapes are closed in its order, each by memory, by that bound
or exhaustively, with the incumbent as cutoff. The log says how; the least bound in it, or the
incumbent, is the proved lower bound.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from formulations.costs.tables import CostTables
from formulations.instance import Instance
from formulations.plan import Shape
from solver.heuristics.choose import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import (
    Infeasibility,
    Moment,
    Result,
    SearchLog,
    Status,
    Termination,
    relative_gap,
)
from solver.search.agenda import Agenda
from solver.search.closer import Closer, Closing
from solver.search.closing import ShapeEngine, enumerate_shape
from solver.search.incumbents import Clock, Incumbent, Incumbents
from solver.search.infeasible import LIMIT_S, explain
from solver.search.paths import CutPool
from solver.search.portfolio import closings
from solver.search.progress import Progress
from solver.search.shapes import shapes

Report = Callable[[Progress], None]

#: How often an engine may ask whether to stop, from one round over the open shapes to the next.
EFFORTS = (100, 1_000, 10_000, None)
#: Bounds are noted for the report after times that grow by this factor: seldom enough to be cheap.
NOTED_EVERY = 1.25


class ShapeSearch:
    """State of one search, of all plans or of those of some `space` with an objective `below`."""

    def __init__(
        self,
        instance: Instance,
        options: SolveOptions,
        report: Report | None,
        times: TimeTables | None = None,
        space: Iterator[Shape] | None = None,
        below: float = math.inf,
    ) -> None:
        self.instance, self.options, self.report = instance, options, report
        self.pool = CutPool()
        self.clock = Clock(options.time_limit_s)
        self.times = times or TimeTables(instance)
        self.collected: list[CostTables] = []
        known = Incumbent(objective=below)
        self.incumbents = Incumbents(instance, options, self.clock, self.times, known)
        self.closer = Closer(instance, options, self._engine(), self.times)
        whole, stop = shapes(instance) if space is None else space, self.clock.out_of_time
        self.agenda = Agenda(whole, self.times, self.closer, stop)
        least = self.agenda.tasks[:1]  # that of the cheapest bound
        #: of the objective, and when
        self.bounds = [(self.clock.elapsed_s, task.objective) for task in least]

    def _engine(self) -> ShapeEngine:
        if self.options.method not in ("cpsat", "milp"):
            return enumerate_shape
        from solver.search.by_model import collector

        return collector(self.collected)

    @property
    def space(self) -> list[Shape]:
        """All shapes."""
        return [task.shape for task in self.agenda.tasks]

    def run(self, per_stage: bool = True) -> None:
        """Closes shapes until none is open or time is up, with more and more effort.

        All; or all but those in which every stage has degrees of its own.

        What resists a round is worth a longer local search.
        """
        exact, stop = self.options.method == "exact", self.clock.out_of_time
        workers = self.options.workers if exact else 1
        for effort in EFFORTS if exact else EFFORTS[-1:]:
            if stop():
                return
            late = exact and effort not in EFFORTS[:2]
            if late and self.agenda.open(self.incumbents.best, effort):
                self.incumbents.seed(self.space, effort or EFFORTS[-2])
            tasks = self.agenda.open(self.incumbents.best, effort)
            tasks = [task for task in tasks if per_stage or not task.shape.per_stage]
            tasks = self.agenda.unpacked(tasks, self.incumbents.best, stop)
            for closing in closings(
                self.closer, tasks, lambda: self.incumbents.best, workers, stop
            ):
                self._take(closing)
                self.tell()
        if self.options.method in ("cpsat", "milp"):
            self._at_once(self.options.method)

    def _take(self, closing: Closing) -> None:
        """The plan before the record, which may say that nothing is better."""
        self.incumbents.offer(closing.found)
        self.agenda.records[closing.record.shape] = closing.record

    def _at_once(self, method: Literal["cpsat", "milp"]) -> None:
        """By one model, all that is left."""
        from solver.search.by_model import AtOnce

        limit, records = self.options.time_limit_s, self.agenda.records
        left_s = None if limit is None else max(0.0, limit - self.clock.elapsed_s)
        known = [(tables, records[tables.plan_shape].bound_ns or 0) for tables in self.collected]
        plan, time_ns = self.incumbents.known.plan, self.incumbents.known.step_time_ns
        incumbent = None if plan is None or time_ns is None else (plan, time_ns)
        model = AtOnce(method, self.closer, known, incumbent, self.pool)

        def tell() -> None:
            for closing in model.closings():
                self._take(closing)
            self.tell()

        try:
            model.run(replace(self.options, time_limit_s=left_s), self.clock.out_of_time, tell)
        finally:
            tell()

    def tell(self) -> None:
        """Reports the state of the search, and notes its bound from time to time."""
        elapsed_s = self.clock.elapsed_s
        noted_s = self.bounds[-1][0] if self.bounds else 0.0
        if self.report is None and elapsed_s < NOTED_EVERY * noted_s:
            return
        found = self.incumbents
        open_ = self.agenda.open(found.best)
        bound = min((task.objective for task in open_), default=found.objective)
        if elapsed_s >= NOTED_EVERY * noted_s:
            self.bounds.append((elapsed_s, bound))
        if self.report is not None:
            self.report(self._progress(bound))

    def _progress(self, bound: float) -> Progress:
        found = self.incumbents
        return Progress(
            shapes_closed=self.agenda.num_closed,
            shapes_total=len(self.agenda.tasks),
            incumbent_ns=found.known.step_time_ns,
            bound_ns=int(bound) if self.instance.objective.minimize == "step_time" else None,
            gap=relative_gap(found.best, bound),
            elapsed_s=self.clock.elapsed_s,
        )

    def result(self, termination: Termination) -> Result:
        """The outcome, with the rest of the shapes logged."""
        best, found = self.incumbents.best, self.incumbents.known
        records = self.agenda.reviewed(best)
        is_open = not self.agenda.complete or any(one.reason == "open" for one in records)
        status = self.status(is_open)
        if not is_open and self.options.method != "minmax":
            termination = Termination.CLOSED
        elif termination is Termination.TIME_LIMIT and not self.clock.out_of_time():
            termination = Termination.UNFINISHED
        bounds = [*self.agenda.bounds(records), *([] if best is None else [best])]
        bound = min(bounds, default=None)
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=found.plan,
            step_time_ns=found.step_time_ns,
            objective=best,
            bound=bound,
            runtime_s=self.clock.elapsed_s,
            log=SearchLog(
                tuple(self.closer.stated(one, best, bound) for one in records),
                self._history(best, bound),
            ),
            method=self.options.method,
            infeasibility=self._explained() if status is Status.INFEASIBLE else None,
            requested_gap=self.options.gap,
        )

    def _history(self, best: float | None, bound: float | None) -> tuple[Moment, ...]:
        """Incumbents and bounds in order of time; bounds as shares of the best plan's objective."""
        if not best:
            return ()
        noted = self.bounds if bound is None else [*self.bounds, (self.clock.elapsed_s, bound)]
        shares = [Moment(elapsed_s=at_s, bound=min(1.0, value / best)) for at_s, value in noted]
        return tuple(sorted([*self.incumbents.history, *shares], key=lambda one: one.elapsed_s))

    def _explained(self) -> Infeasibility:
        """Why there is no plan, within the time that is left."""
        left_s = self.clock.left_s
        return explain(self.instance, LIMIT_S if left_s is None else min(LIMIT_S, left_s))

    def status(self, is_open: bool) -> Status:
        """What is proved."""
        if self.incumbents.best is not None:
            return Status.FEASIBLE if is_open else Status.OPTIMAL
        return Status.UNKNOWN if is_open else Status.INFEASIBLE


def solve(
    instance: Instance, options: SolveOptions | None = None, progress: Report | None = None
) -> Result:
    """The best plan of an instance with its proof, or the best one so far with its bound.

    A time limit and Ctrl-C return the incumbent; nothing is lost. PlannerError if a model that the
    options ask for cannot be written.
    """
    options = options or SolveOptions()
    search = ShapeSearch(instance, options, progress)
    termination, space = Termination.TIME_LIMIT, search.space
    try:
        with time_up_after(search.clock.left_s):
            if options.method == "minmax":
                search.incumbents.baselines(space)
            else:
                search.incumbents.seed_chunks(space)
                search.incumbents.seed(space)
                search.incumbents.survey(space)
                if options.method == "exact" and any(shape.per_stage for shape in space):
                    search.run(per_stage=False)  # so that more choice is not for the worse
                search.run()
        if options.method == "minmax" and not search.clock.out_of_time():
            termination = Termination.HEURISTIC
    except TimeUp:
        pass
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    result = search.result(termination)
    if options.write_model is not None:
        from solver.search.model_file import write_model

        write_model(options, search.times, result.plan, search.pool)
    return result


def seen_within(instance: Instance, limit_s: float) -> tuple[float | None, float | None]:
    """Lower bound of the objective of all plans, and the best one seen, as such a time allows.

    The bound is proved, and infinite where there is no plan. None: the time was too short to look
    at all shapes, or to see a plan.
    """
    search = ShapeSearch(instance, SolveOptions(time_limit_s=limit_s), None)
    with suppress(TimeUp), time_up_after(search.clock.left_s):
        search.run()
    best = search.incumbents.best
    if not search.agenda.complete:
        return None, best
    records = search.agenda.reviewed(best)
    return min(search.agenda.bounds(records), default=math.inf), best
