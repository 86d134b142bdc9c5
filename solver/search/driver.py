"""The search over shapes: cheapest bound first, until no open shape can beat the incumbent.

Every shape gets a closed-form bound; shapes are closed in its order, each by memory, by that bound
or exhaustively, with the incumbent as cutoff. The log says how; the least bound in it, or the
incumbent, is the proved lower bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Literal

from formulations.costs.tables import CostTables
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.plan import Shape
from solver.heuristics.choose import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import (
    Infeasibility,
    Result,
    SearchLog,
    ShapeRecord,
    Status,
    Termination,
    objective_weight,
    relative_gap,
)
from solver.search.closer import Closer, Task
from solver.search.closing import ShapeEngine, enumerate_shape
from solver.search.incumbents import Clock, Incumbents
from solver.search.infeasible import LIMIT_S, explain
from solver.search.paths import CutPool
from solver.search.portfolio import closings
from solver.search.progress import Progress
from solver.search.shapes import shapes

Report = Callable[[Progress], None]

#: Shapes that are looked at together, before time is looked at again.
AT_ONCE = 512
#: More shapes than these are no question that is answered one by one.
MOST_SHAPES = 10**6
#: How often an engine may ask whether to stop, from one round over the open shapes to the next.
EFFORTS = (100, 1_000, 10_000, None)


@dataclass
class _Search:
    """State of one search."""

    instance: Instance
    options: SolveOptions
    report: Report | None
    records: dict[Shape, ShapeRecord] = field(default_factory=dict)
    pool: CutPool = field(default_factory=CutPool)

    def __post_init__(self) -> None:
        self.clock = Clock(self.options.time_limit_s)
        times, space, ranked = TimeTables(self.instance), shapes(self.instance), list[Task]()
        self.all_listed = True
        while some := list(islice(space, AT_ONCE)):
            if ranked and self.clock.out_of_time():
                self.all_listed, ranked = False, []
                break
            if len(ranked) >= MOST_SHAPES:
                found = f"more than {MOST_SHAPES:,} combinations of nodes, degrees and strategies"
                raise InstanceError("search", found, "fewer, or idle_nodes: false")
            ranked += [
                Task(form.bound_ns * objective_weight(self.instance, shape), *form, shape)
                for form, shape in zip(times.forms(some), some, strict=True)
            ]
        self.open = sorted(ranked, key=lambda task: task.objective)
        self.collected: list[CostTables] = []
        self.incumbents = Incumbents(self.instance, self.options, self.clock, times)
        self.closer = Closer(self.instance, self.options, self._engine(), times)

    def _engine(self) -> ShapeEngine:
        if self.options.method not in ("cpsat", "milp"):
            return enumerate_shape
        from solver.search.by_model import collector

        return collector(self.collected)

    def run(self) -> None:
        """Closes shapes until none is open or time is up, with more and more effort.

        What resists a round is worth a longer local search.
        """
        exact = self.options.method == "exact"
        workers = self.options.workers if exact else 1
        for effort in EFFORTS if exact else EFFORTS[-1:]:
            if self.clock.out_of_time():
                return
            tasks = self._tasks(effort)
            if tasks and exact and effort not in EFFORTS[:2]:
                self.incumbents.seed([task.shape for task in self.open], effort or EFFORTS[-2])
                tasks = self._tasks(effort)
            tasks = self._unpacked(tasks)
            for closing in closings(
                self.closer, tasks, lambda: self.incumbents.best, workers, self.clock.out_of_time
            ):
                # before the record that says that nothing is better
                self.incumbents.offer(closing.found)
                self.records[closing.record.shape] = closing.record
                self.tell()
        if self.options.method in ("cpsat", "milp"):
            self._at_once(self.options.method)

    def _at_once(self, method: Literal["cpsat", "milp"]) -> None:
        """By one model, all that is left."""
        from solver.search.by_model import AtOnce

        limit = self.options.time_limit_s
        left_s = None if limit is None else max(0.0, limit - self.clock.elapsed_s)
        known = [(tables, self.records[tables.shape].bound_ns or 0) for tables in self.collected]
        plan, time_ns = self.incumbents.known.plan, self.incumbents.known.step_time_ns
        incumbent = None if plan is None or time_ns is None else (plan, time_ns)
        model = AtOnce(method, self.closer, known, incumbent, self.pool)

        def tell() -> None:
            for closing in model.closings():
                self.records[closing.record.shape] = closing.record
                self.incumbents.offer(closing.found)
            self.tell()

        try:
            model.run(replace(self.options, time_limit_s=left_s), self.clock.out_of_time, tell)
        finally:
            tell()

    def _tasks(self, effort: int | None) -> list[Task]:
        """What may still hold a better plan, best bound first.

        Devices with several chunks come last: their bounds are low, and take longest to rise.
        """
        tasks = []
        for task in takewhile(
            lambda one: not self.closer.beyond(one, self.incumbents.best), self.open
        ):
            record = self.records.get(task.shape)
            if record is None:
                tasks.append(replace(task, effort=effort))
            elif self.closer.reviewed(record, self.incumbents.best).reason == "open":
                bound_ns = record.bound_ns or 0
                objective = bound_ns * objective_weight(self.instance, task.shape)
                tasks.append(Task(objective, bound_ns, record.proof, task.shape, effort))
        left = (task for task in tasks if not self.closer.beyond(task, self.incumbents.best))
        return sorted(left, key=lambda task: (task.shape.vpp > 1, task.objective))

    def _unpacked(self, tasks: list[Task]) -> list[Task]:
        """The tasks that whole blocks do not close; the others are. All are left without time."""
        left = list[Task]()
        for first in range(0, len(tasks), AT_ONCE):
            some = tasks[first : first + AT_ONCE]
            if self.clock.out_of_time():
                return left + tasks[first:]
            for task in self.closer.packed(some, self.incumbents.best):
                if task.proof == "packing":
                    self.records[task.shape] = self.closer.by_bound(
                        task, self.incumbents.best
                    ).record
                else:
                    left.append(task)
        return left

    def tell(self) -> None:
        """Reports the state of the search."""
        if self.report is None:
            return
        bound = min(
            (task.objective for task in self._tasks(None)), default=self.incumbents.objective
        )
        self.report(
            Progress(
                shapes_closed=sum(one.reason != "open" for one in self.records.values()),
                shapes_total=len(self.open),
                incumbent_ns=self.incumbents.known.step_time_ns,
                bound_ns=int(bound) if self.instance.objective.minimize == "step_time" else None,
                gap=relative_gap(self.incumbents.best, bound),
                elapsed_s=self.clock.elapsed_s,
            )
        )

    def result(self, termination: Termination) -> Result:
        """The outcome, with the rest of the shapes logged."""
        records = tuple(
            self.closer.reviewed(self.records[task.shape], self.incumbents.best)
            if task.shape in self.records
            else self.closer.by_bound(task, self.incumbents.best).record
            for task in self.open
        )
        bounds = [
            record.bound_ns * objective_weight(self.instance, record.shape)
            for record in records
            if record.bound_ns is not None
        ]
        is_open = any(record.reason == "open" for record in records) or not self.all_listed
        status = self.status(is_open)
        if not is_open and self.options.method != "minmax":
            termination = Termination.CLOSED
        elif termination is Termination.TIME_LIMIT and not self.clock.out_of_time():
            termination = Termination.UNFINISHED
        found = self.incumbents.known
        bound = (
            min([*bounds, self.incumbents.objective]) if found.plan else min(bounds, default=None)
        )
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=found.plan,
            step_time_ns=found.step_time_ns,
            objective=self.incumbents.best,
            bound=bound,
            runtime_s=self.clock.elapsed_s,
            log=SearchLog(
                tuple(self.closer.stated(one, self.incumbents.best, bound) for one in records)
            ),
            method=self.options.method,
            infeasibility=self._explained() if status is Status.INFEASIBLE else None,
            requested_gap=self.options.gap,
        )

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
    search = _Search(instance, options, progress)
    termination, space = Termination.TIME_LIMIT, [task.shape for task in search.open]
    try:
        with time_up_after(search.clock.left_s):
            if options.method == "minmax":
                search.incumbents.baselines(space)
            else:
                search.incumbents.seed_chunks(space)
                search.incumbents.seed(space)
                search.incumbents.survey(space)
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

        write_model(options, search.closer.times, result.plan, search.pool)
    return result
