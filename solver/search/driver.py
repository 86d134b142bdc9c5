"""The search over shapes: cheapest bound first, until no open shape can beat the incumbent.

Every shape gets the work bound; shapes are closed in its order, each by memory, by the work bound
or exhaustively, with the incumbent as cutoff. The log says how; the least bound in it, or the
incumbent, is the proved lower bound.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from formulations.instance import Instance
from formulations.plan import Plan, Shape
from solver.enumeration.enumerate import below
from solver.heuristics.baselines import equal_split_plan, megatron_rule, minmax_plan
from solver.heuristics.choose import TimeTables
from solver.heuristics.estimates import work_bound_ns
from solver.options import SolveOptions
from solver.result import (
    Result,
    SearchLog,
    ShapeRecord,
    Status,
    Termination,
    max_step_time_ns,
    objective_weight,
)
from solver.search.closing import ShapeEngine, enumerate_shape, lacks_memory
from solver.search.infeasible import explain
from solver.search.progress import Progress
from solver.search.shapes import shapes

Report = Callable[[Progress], None]


@dataclass
class _Search:
    """State of one search."""

    instance: Instance
    options: SolveOptions
    report: Report | None
    begin: float = field(default_factory=time.monotonic)
    plan: Plan | None = None
    step_time_ns: int | None = None
    objective: float = math.inf
    records: dict[Shape, ShapeRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.times = TimeTables(self.instance)
        ranked = []
        for shape in shapes(self.instance):
            bound = work_bound_ns(self.instance, shape, self.times.times(shape))
            ranked.append((bound * objective_weight(self.instance, shape), bound, shape))
        self.open = sorted(ranked, key=lambda entry: entry[0])

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begin

    def out_of_time(self) -> bool:
        limit = self.options.time_limit_s
        return limit is not None and self.elapsed_s >= limit

    def offer(self, found: tuple[Plan, int] | None) -> None:
        """Keeps a plan that is better than the incumbent."""
        if found is None:
            return
        objective = found[1] * objective_weight(self.instance, found[0].shape)
        if objective < self.objective or self.plan is None:
            self.plan, self.step_time_ns = found
            self.objective = objective

    def seed(self) -> None:
        """Incumbents from the heuristics."""
        space = [shape for _, _, shape in self.open]
        for rule in (minmax_plan, equal_split_plan):
            self.offer(rule(self.instance, space, stop=self.out_of_time))
        self.offer(megatron_rule(self.instance, space))

    def cutoff(self, shape: Shape) -> tuple[int, bool]:
        """Only step times below this are of interest; and whether the limits say so."""
        limit = max_step_time_ns(self.instance, shape)
        weight = objective_weight(self.instance, shape)
        better = 1 << 56
        if self.plan is not None and weight:
            better = math.ceil(self.objective / weight)
        elif self.plan is not None:
            better = 1
        limited = limit is not None and limit < better
        return (limit + 1 if limit is not None and limited else better), limited

    def close(self, shape: Shape, bound_ns: int, engine: ShapeEngine) -> bool:
        """Closes one shape; False if time ran out before that."""
        cutoff, limited = self.cutoff(shape)
        tables = self.times.costs(shape)
        if lacks_memory(tables):
            self.records[shape] = ShapeRecord(shape=shape, reason="infeasible", proof="memory")
            return True
        if bound_ns >= below(cutoff, self.options.gap) and not limited:
            self.record_work(shape, bound_ns)
            return True
        gap = 0.0 if limited else self.options.gap
        answer = engine(tables, cutoff, gap, self.out_of_time)
        if answer.plan is not None and answer.step_time_ns is not None:
            self.offer((answer.plan, answer.step_time_ns))
        if not answer.complete:
            return False
        none = answer.plan is None and (limited or self.plan is None)
        target = None if none else below(answer.step_time_ns or cutoff, gap)
        self.records[shape] = ShapeRecord(
            shape=shape,
            reason="infeasible" if none else "solved" if answer.plan else "bounded",
            proof="cpsat" if self.options.method == "cpsat" else "enumeration",
            bound_ns=target,
        )
        return True

    def record_work(self, shape: Shape, bound_ns: int) -> None:
        """Closed by the work bound if that is beyond a limit or the incumbent, else open."""
        cutoff, limited = self.cutoff(shape)
        if limited and bound_ns >= cutoff:
            self.records[shape] = ShapeRecord(shape=shape, reason="infeasible", proof="limit")
            return
        closed = self.plan is not None and bound_ns >= below(cutoff, self.options.gap)
        self.records[shape] = ShapeRecord(
            shape=shape, reason="bounded" if closed else "open", proof="work", bound_ns=bound_ns
        )

    def run(self, engine: ShapeEngine) -> None:
        """Closes shapes until none is open or time is up."""
        for objective, bound_ns, shape in self.open:
            if self.out_of_time():
                return
            if self.plan is not None and objective >= self.objective * (1 - self.options.gap):
                return
            self.close(shape, bound_ns, engine)
            self.tell(objective)

    def tell(self, bound: float) -> None:
        """Reports the state of the search."""
        if self.report is None:
            return
        known = self.plan is not None and self.objective > 0
        gap = max(0.0, 1 - bound / self.objective) if known else None
        self.report(
            Progress(
                shapes_closed=len(self.records),
                shapes_total=len(self.open),
                incumbent_ns=self.step_time_ns,
                bound_ns=int(bound) if self.instance.objective.minimize == "step_time" else None,
                gap=gap,
                elapsed_s=self.elapsed_s,
            )
        )

    def result(self, termination: Termination) -> Result:
        """The outcome, with the rest of the shapes logged."""
        for _, bound_ns, shape in self.open:
            if shape not in self.records:
                self.record_work(shape, bound_ns)
        records = tuple(self.records[shape] for _, _, shape in self.open)
        bounds = [
            record.bound_ns * objective_weight(self.instance, record.shape)
            for record in records
            if record.bound_ns is not None
        ]
        is_open = any(record.reason == "open" for record in records)
        status = self.status(is_open)
        if not is_open and self.options.method != "minmax":
            termination = Termination.CLOSED
        bound = min([*bounds, self.objective]) if self.plan else min(bounds, default=None)
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=self.plan,
            step_time_ns=self.step_time_ns,
            objective=self.objective if self.plan else None,
            bound=bound,
            runtime_s=self.elapsed_s,
            log=SearchLog(shapes=records),
            method=self.options.method,
            infeasibility=explain(self.instance) if status is Status.INFEASIBLE else None,
        )

    def status(self, is_open: bool) -> Status:
        """What is proved."""
        if self.plan is not None:
            return Status.FEASIBLE if is_open else Status.OPTIMAL
        return Status.UNKNOWN if is_open else Status.INFEASIBLE


def _engine(options: SolveOptions) -> ShapeEngine:
    if options.method != "cpsat":
        return enumerate_shape
    from solver.search.by_cpsat import cpsat_engine

    return cpsat_engine(options)


def solve(
    instance: Instance, options: SolveOptions | None = None, progress: Report | None = None
) -> Result:
    """The best plan of an instance with its proof, or the best one so far with its bound.

    A time limit and Ctrl-C return the incumbent; nothing is lost.
    """
    options = options or SolveOptions()
    search = _Search(instance, options, progress)
    termination = Termination.TIME_LIMIT
    try:
        search.seed()
        if options.method != "minmax":
            search.run(_engine(options))
        elif not search.out_of_time():
            termination = Termination.HEURISTIC
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    return search.result(termination)
