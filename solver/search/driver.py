"""The search over shapes: cheapest bound first, until no open shape can beat the incumbent.

Every shape gets a closed-form bound; shapes are closed in its order, each by memory, by that bound
or exhaustively, with the incumbent as cutoff. The log says how; the least bound in it, or the
incumbent, is the proved lower bound.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.plan import Plan, Shape
from solver.heuristics.baselines import (
    equal_chunks_plan,
    equal_split_plan,
    megatron_rule,
    minmax_plan,
)
from solver.heuristics.choose import TimeTables
from solver.heuristics.local import local_plans, surveyed_plan
from solver.heuristics.node_orders import count_orders
from solver.interrupt import GRACE_S, TimeUp, time_up_after
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
from solver.search.closer import Closer, Task
from solver.search.closing import ORDER_LIMIT, ShapeEngine, enumerate_shape
from solver.search.infeasible import explain
from solver.search.paths import CutPool
from solver.search.portfolio import closings
from solver.search.progress import Progress
from solver.search.shapes import shapes

Report = Callable[[Progress], None]

#: Patience of the first local search: where all node orders are looked at in one graph, where they
#: are looked at one by one (uneven shares), and where there are too many. A better plan saves more
#: and more.
PATIENCE, PATIENCE_ONE_BY_ONE, PATIENCE_MANY = 6, 50, 200
#: Shapes that are looked at together, before time is looked at again.
AT_ONCE = 512
#: More shapes than these are no question that is answered one by one.
MOST_SHAPES = 10**6
#: Part of the time limit that a survey may take.
SURVEY = 0.3
#: How often an engine may ask whether to stop, from one round over the open shapes to the next.
EFFORTS = (100, 1_000, 10_000, None)


@dataclass(frozen=True)
class _Incumbent:
    """The best plan so far: set at once, as Ctrl-C may come at any moment."""

    plan: Plan | None = None
    step_time_ns: int | None = None
    objective: float = float("inf")


@dataclass
class _Search:
    """State of one search."""

    instance: Instance
    options: SolveOptions
    report: Report | None
    begin: float = field(default_factory=time.monotonic)
    incumbent: _Incumbent = field(default_factory=_Incumbent)
    records: dict[Shape, ShapeRecord] = field(default_factory=dict)
    pool: CutPool = field(default_factory=CutPool)

    def __post_init__(self) -> None:
        times, space, ranked = TimeTables(self.instance), shapes(self.instance), list[Task]()
        self.all_listed = True
        while some := list(islice(space, AT_ONCE)):
            if ranked and self.out_of_time():
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
        self.closer = Closer(
            self.instance, self.options, _engine(self.options, self.pool, self.begin), times
        )

    @property
    def patience(self) -> int:
        """Of the first local search."""
        nodes = max((task.shape.nodes_used for task in self.open), key=sum, default=())
        if count_orders(nodes) > ORDER_LIMIT:
            return PATIENCE_MANY
        uneven = self.instance.search.micro_batches == "uneven"
        return PATIENCE_ONE_BY_ONE if uneven else PATIENCE

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begin

    @property
    def left_s(self) -> float | None:
        """Until what does not ask whether to stop is ended; None: never."""
        limit = self.options.time_limit_s
        return None if limit is None else max(0.0, limit - self.elapsed_s) + GRACE_S

    def out_of_time(self) -> bool:
        limit = self.options.time_limit_s
        return limit is not None and self.elapsed_s >= limit

    @property
    def objective(self) -> float:
        """Of the incumbent; infinite without one."""
        return self.incumbent.objective

    @property
    def best(self) -> float | None:
        """Objective of the incumbent."""
        return None if self.incumbent.plan is None else self.objective

    def offer(self, found: tuple[Plan, int] | None) -> None:
        """Keeps a plan, with its step time in ns, that is better than the incumbent."""
        if found is None:
            return
        objective = found[1] * objective_weight(self.instance, found[0].shape)
        if self.best is None or objective < self.objective:
            self.incumbent = _Incumbent(*found, objective)

    def seed(self, patience: int) -> None:
        """Incumbents of a local search for each schedule."""
        for schedule in dict.fromkeys(self.instance.search.schedule):
            own = [task.shape for task in self.open if task.shape.schedule == schedule]
            self._seed(own, patience)

    def _seed(self, space: Sequence[Shape], patience: int) -> None:
        """It may ask whether to stop ten times `patience` times for its first plan.

        And `patience` times for each better one.
        """
        times = self.closer.times
        left = iter(range(10 * patience))

        def stop() -> bool:
            return next(left, None) is None or self.out_of_time()

        for found in local_plans(self.instance, space, self.options.seed, stop, times):
            self.offer(found)
            left = iter(range(patience))

    def seed_chunks(self) -> None:
        """Incumbents with equal chunks, which a local search with little patience may miss."""
        space = [task.shape for task in self.open]
        self.offer(equal_chunks_plan(space, self.closer.times, self.out_of_time))

    def survey(self) -> None:
        """Incumbents from all shapes, if bounds leave room for much better plans."""
        limit = self.options.time_limit_s
        until_s = None if limit is None else self.elapsed_s + SURVEY * limit

        def stop() -> bool:
            return until_s is not None and self.elapsed_s >= until_s

        space = [task.shape for task in self.open]
        self.offer(surveyed_plan(self.instance, space, self.objective, stop, self.closer.times))

    def baselines(self) -> None:
        """Incumbents of the rules that others use, on all shapes."""
        space = [task.shape for task in self.open]
        for rule in (minmax_plan, equal_split_plan):
            self.offer(rule(self.instance, space, stop=self.out_of_time))
        self.offer(megatron_rule(self.instance, space))

    def run(self) -> None:
        """Closes shapes until none is open or time is up, with more and more effort.

        What resists a round is worth a longer local search.
        """
        exact = self.options.method == "exact"
        workers = self.options.workers if exact else 1
        for effort in EFFORTS if exact else EFFORTS[-1:]:
            if self.out_of_time():
                return
            tasks = self._tasks(effort)
            if tasks and exact and effort not in EFFORTS[:2]:
                self.seed(effort or EFFORTS[-2])
                tasks = self._tasks(effort)
            tasks = self._unpacked(tasks)
            for closing in closings(
                self.closer, tasks, lambda: self.best, workers, self.out_of_time
            ):
                self.offer(closing.found)  # before the record that says that nothing is better
                self.records[closing.record.shape] = closing.record
                self.tell()

    def _tasks(self, effort: int | None) -> list[Task]:
        """What may still hold a better plan, best bound first.

        Devices with several chunks come last: their bounds are low, and take longest to rise.
        """
        tasks = []
        for task in takewhile(lambda one: not self.closer.beyond(one, self.best), self.open):
            record = self.records.get(task.shape)
            if record is None:
                tasks.append(replace(task, effort=effort))
            elif self.closer.reviewed(record, self.best).reason == "open":
                bound_ns = record.bound_ns or 0
                objective = bound_ns * objective_weight(self.instance, task.shape)
                tasks.append(Task(objective, bound_ns, record.proof, task.shape, effort))
        left = (task for task in tasks if not self.closer.beyond(task, self.best))
        return sorted(left, key=lambda task: (task.shape.vpp > 1, task.objective))

    def _unpacked(self, tasks: list[Task]) -> list[Task]:
        """The tasks that whole blocks do not close; the others are. All are left without time."""
        left = list[Task]()
        for first in range(0, len(tasks), AT_ONCE):
            some = tasks[first : first + AT_ONCE]
            if self.out_of_time():
                return left + tasks[first:]
            for task in self.closer.packed(some, self.best):
                if task.proof == "packing":
                    self.records[task.shape] = self.closer.by_bound(task, self.best).record
                else:
                    left.append(task)
        return left

    def tell(self) -> None:
        """Reports the state of the search."""
        if self.report is None:
            return
        bound = min((task.objective for task in self._tasks(None)), default=self.objective)
        self.report(
            Progress(
                shapes_closed=len(self.records),
                shapes_total=len(self.open),
                incumbent_ns=self.incumbent.step_time_ns,
                bound_ns=int(bound) if self.instance.objective.minimize == "step_time" else None,
                gap=relative_gap(self.best, bound),
                elapsed_s=self.elapsed_s,
            )
        )

    def result(self, termination: Termination) -> Result:
        """The outcome, with the rest of the shapes logged."""
        records = tuple(
            self.closer.reviewed(self.records[task.shape], self.best)
            if task.shape in self.records
            else self.closer.by_bound(task, self.best).record
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
        elif termination is Termination.TIME_LIMIT and not self.out_of_time():
            termination = Termination.UNFINISHED
        found = self.incumbent
        bound = min([*bounds, self.objective]) if found.plan else min(bounds, default=None)
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=found.plan,
            step_time_ns=found.step_time_ns,
            objective=self.best,
            bound=bound,
            runtime_s=self.elapsed_s,
            log=SearchLog(shapes=records),
            method=self.options.method,
            infeasibility=explain(self.instance) if status is Status.INFEASIBLE else None,
            requested_gap=self.options.gap,
        )

    def status(self, is_open: bool) -> Status:
        """What is proved."""
        if self.best is not None:
            return Status.FEASIBLE if is_open else Status.OPTIMAL
        return Status.UNKNOWN if is_open else Status.INFEASIBLE


def _engine(options: SolveOptions, pool: CutPool, begin: float) -> ShapeEngine:
    if options.method not in ("cpsat", "milp"):
        return enumerate_shape
    from solver.search.by_model import shape_engine

    return shape_engine(options.method, options, pool, begin)


def solve(
    instance: Instance, options: SolveOptions | None = None, progress: Report | None = None
) -> Result:
    """The best plan of an instance with its proof, or the best one so far with its bound.

    A time limit and Ctrl-C return the incumbent; nothing is lost. PlannerError if a model that the
    options ask for cannot be written.
    """
    options = options or SolveOptions()
    search = _Search(instance, options, progress)
    termination = Termination.TIME_LIMIT
    try:
        with time_up_after(search.left_s):
            if options.method == "minmax":
                search.baselines()
            else:
                search.seed_chunks()
                search.seed(search.patience)
                search.survey()
                search.run()
        if options.method == "minmax" and not search.out_of_time():
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
