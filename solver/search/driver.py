"""The search over shapes: cheapest bound first, until no open shape can beat the incumbent.

Every shape gets a closed-form bound; shapes are closed in its order, each by memory, by that bound
or exhaustively, with the incumbent as cutoff. The log says how; the least bound in it, or the
incumbent, is the proved lower bound.
"""

import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from formulations.costs.tables import CostTables
from formulations.instance import Instance
from formulations.instance.instance import Limits
from formulations.plan import Plan, Shape
from formulations.space import shapes
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Deadline, TimeUp, raises, time_up_after
from solver.options import SolveOptions
from solver.result import (
    Result,
    SearchLog,
    ShapeRecord,
    Status,
    Termination,
    objective_weight,
    relative_gap,
)
from solver.search.enumeration import ShapeEngine, enumerate_shape
from solver.search.fathoming import Answers, Closer, Closing
from solver.search.feasibility_relaxation import LIMIT_S, explain
from solver.search.incumbents import Incumbent, Incumbents
from solver.search.open_list import OpenList
from solver.search.paths import CutPool
from solver.search.portfolio import closings, crew_of
from solver.search.progress import Report, SearchHistory
from solver.study.store import Study

#: What a study notes of a search: the gap and the limits that it was asked for.
SOLVE = "solve"
#: How often an engine may ask whether to stop, from one round over the open shapes to the next.
EFFORTS = (100, 1_000, 10_000, None)


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
        study: Study | None = None,
    ) -> None:
        self.instance, self.options = instance, options
        self.pool = CutPool()
        self.deadline = Deadline(options.time_limit_s)
        self.times = times or TimeTables(instance)
        self.collected: list[CostTables] = []
        known = Incumbent(objective=below)
        self.incumbents = Incumbents(
            instance, options, self.deadline, self.times, known, study=study
        )
        self.crew = crew_of(options) if options.method == "exact" else None
        engine: ShapeEngine = enumerate_shape
        if options.method in ("cpsat", "milp"):
            from solver.search.by_model import collector

            engine = collector(self.collected)
        self.closer = Closer(instance, options, engine, self.times, Answers(study))
        stop = self.deadline.over
        whole = shapes(instance, raises(stop)) if space is None else space
        self.open_list = OpenList(whole, self.times, self.closer, stop)
        self.history = SearchHistory(
            instance, self.deadline, self.open_list, self.incumbents, report
        )

    @property
    def space(self) -> list[Shape]:
        """All shapes."""
        return [task.shape for task in self.open_list.tasks]

    def recall(self) -> None:
        """The best plan that a study knows, whoever found it."""
        self.incumbents.recall()
        for candidate in self.closer.answers.plans():
            self.incumbents.offer(candidate)

    def run(
        self,
        among: Collection[Shape] | None = None,
        efforts: Sequence[int | None] = EFFORTS,
    ) -> None:
        """Closes shapes, all or some, until none is open or time is up, with more and more effort.

        What resists a round is worth a longer local search.
        """
        exact = self.options.method == "exact"
        for effort in efforts if exact else EFFORTS[-1:]:
            self._round(effort, among)
        if self.options.method in ("cpsat", "milp"):
            self._at_once(self.options.method)

    def climb(self) -> None:
        """Closes shapes per stage near the incumbent's, as long as that finds a better plan."""
        before, plan = None, self.incumbents.known.plan
        while plan is not None and plan != before:
            self._round(EFFORTS[0], {shape for shape in self.space if _is_near(shape, plan.shape)})
            before, plan = plan, self.incumbents.known.plan

    def _round(self, effort: int | None, among: Collection[Shape] | None) -> None:
        """Looks at all open shapes, or those of some, with so much effort each."""
        exact, stop = self.options.method == "exact", self.deadline.over
        if stop():
            return
        late, starts = exact and effort not in EFFORTS[:2], self.incumbents
        if late and self.open_list.open(starts.best, effort):
            # longer searches for plans, as long as what has been spent so far allows
            space = [shape for shape in self.space if among is None or shape in among]
            name = f"{effort} of {len(space)}"
            patience = min(effort or EFFORTS[-2], starts.asked)
            starts.start(f"seed {name}", partial(starts.seed, space, patience))
            if starts.cut:
                starts.start(f"survey {name}", partial(starts.survey, space))
        tasks = self.open_list.open(self.incumbents.best, effort)
        tasks = [task for task in tasks if among is None or task.shape in among]
        tasks = self.open_list.unpacked(tasks, self.incumbents.best, stop)
        for closing in closings(self.closer, tasks, lambda: self.incumbents.best, self.crew, stop):
            self._take(closing)
            if closing.record.reason == "open":
                self.incumbents.asked += effort or 0
            self.history.tell()

    def _take(self, closing: Closing) -> None:
        """The plan before the record, which may say that nothing is better."""
        self.incumbents.offer(closing.found)
        self.open_list.records[closing.record.shape] = closing.record

    def _at_once(self, method: Literal["cpsat", "milp"]) -> None:
        """By one model, all that is left."""
        from solver.search.by_model import AtOnce

        records, left_s = self.open_list.records, self.deadline.left_s
        known = [(tables, records[tables.plan_shape].bound_ns or 0) for tables in self.collected]
        plan, time_ns = self.incumbents.known.plan, self.incumbents.known.step_time_ns
        incumbent = None if plan is None or time_ns is None else (plan, time_ns)
        model = AtOnce(method, self.closer, known, incumbent, self.pool)

        def tell() -> None:
            for closing in model.closings():
                self._take(closing)
            self.history.tell()

        try:
            model.run(replace(self.options, time_limit_s=left_s), self.deadline.over, tell)
        finally:
            tell()

    def result(self, termination: Termination) -> Result:
        """The outcome, with the rest of the shapes logged."""
        best, found = self.incumbents.best, self.incumbents.known
        records = self.open_list.reviewed(best)
        is_open = not self.open_list.complete or any(one.reason == "open" for one in records)
        if best is not None:
            status = Status.FEASIBLE if is_open else Status.OPTIMAL
        else:
            status = Status.UNKNOWN if is_open else Status.INFEASIBLE
        infeasibility = None
        if status is Status.INFEASIBLE:
            left_s = self.deadline.end_s
            infeasibility = explain(self.instance, min(LIMIT_S, left_s or LIMIT_S))
        if not is_open:
            termination = Termination.CLOSED
        elif termination is Termination.TIME_LIMIT and not self.deadline.over():
            termination = Termination.UNFINISHED
        bounds = [*self.open_list.bounds(records), *([] if best is None else [best])]
        bound = min(bounds, default=None) if self.open_list.complete else None
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=found.plan,
            step_time_ns=found.step_time_ns,
            objective=best,
            bound=bound,
            runtime_s=self.deadline.elapsed_s,
            log=SearchLog(
                tuple(self.closer.cutoffs.stated(one, best, bound) for one in records),
                self.history.moments(best, bound),
            ),
            method=self.options.method,
            infeasibility=infeasibility,
            requested_gap=self.options.gap,
        )


def _is_near(shape: Shape, other: Shape) -> bool:
    """Whether stages choose their degrees, two stages more or less, up to twice the sequences."""
    sequences, held = shape.dp * shape.micro_batch, other.dp * other.micro_batch
    alike = shape.nodes_used == other.nodes_used and held <= 2 * sequences <= 4 * held
    return shape.per_stage and alike and abs(shape.pp - other.pp) <= 2


def solve(
    instance: Instance,
    options: SolveOptions | None = None,
    progress: Report | None = None,
    study: Study | None = None,
    start: tuple[Plan, int] | None = None,
) -> Result:
    """The best plan of an instance with its proof, or the best one so far with its bound.

    A time limit and Ctrl-C return the incumbent; nothing is lost. `study`: what was closed before,
    and where to keep what is closed now. start: a plan of the instance to begin with, and its step
    time in ns. PlannerError if a model that the options ask for cannot be written, or a study.
    """
    options = options or SolveOptions()
    if study is not None:
        limits = instance.limits.model_dump(mode="json")
        study.note(SOLVE, {"gap": options.gap, "limits": limits})
    search = ShapeSearch(instance, options, progress, study=study)
    search.incumbents.offer(start)
    termination, space = Termination.TIME_LIMIT, search.space
    try:
        with time_up_after(search.deadline.end_s):
            if options.method == "minmax":
                search.incumbents.baselines(space)
            else:
                if options.time_limit_s is not None:  # then no run is like another
                    search.recall()
                starts = search.incumbents
                starts.start("chunks", partial(starts.seed_chunks, space))
                starts.start("seed", partial(starts.seed, space))
                starts.start("survey", partial(starts.survey, space))
                grouped = {shape: None for shape in space if not shape.per_stage}
                if options.method == "exact" and len(grouped) < len(space):
                    search.run(grouped)  # so that more choice is not for the worse
                    search.climb()
                search.run()
        if options.method == "minmax" and not search.deadline.over():
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
    with suppress(TimeUp), time_up_after(search.deadline.end_s):
        search.run()
    best = search.incumbents.best
    if not search.open_list.complete:
        return None, best
    records = search.open_list.reviewed(best)
    return min(search.open_list.bounds(records), default=math.inf), best


@dataclass(frozen=True)
class SearchOverview:
    """Shapes closed and open, the latter best bound first; the best plan and its bound.

    objective, bound: those of `solver.result.Result`. spent_s: of processors, by the engine.
    """

    closed: int
    open: tuple[ShapeRecord, ...]
    step_time_ns: int | None
    objective: float | None
    bound: float | None
    spent_s: float

    @property
    def gap(self) -> float | None:
        """Largest distance to the best plan."""
        return relative_gap(self.objective, self.bound)


def search_overview(study: Study, notes: dict[str, str]) -> SearchOverview | None:
    """How far `solve` has come; None where it has not begun."""
    if SOLVE not in notes:
        return None
    asked = json.loads(notes[SOLVE])
    instance = study.instance.model_copy(update={"limits": Limits.model_validate(asked["limits"])})
    search = ShapeSearch(instance, SolveOptions(gap=asked["gap"]), None, study=study)
    search.recall()
    open_list, closer, spent_s = search.open_list, search.closer, 0.0
    for task in open_list.tasks:
        for answer in closer.answers.every(task.shape):
            spent_s += answer.spent_s
            known = open_list.records.get(task.shape)
            if known is None or known.reason == "open":
                open_list.records[task.shape] = closer.recorded(task, answer)
    found = search.incumbents
    open_list.unpacked(open_list.open(found.best), found.best, lambda: False)
    records = open_list.reviewed(found.best)
    bounds = [*open_list.bounds(records), *([] if found.best is None else [found.best])]
    left = [one for one in records if one.reason == "open"]
    left.sort(key=lambda one: (one.bound_ns or 0) * objective_weight(instance, one.shape))
    return SearchOverview(
        closed=len(records) - len(left),
        open=tuple(left),
        step_time_ns=found.known.step_time_ns,
        objective=found.best,
        bound=min(bounds, default=None),
        spent_s=spent_s,
    )
