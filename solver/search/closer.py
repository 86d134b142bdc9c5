"""How one shape is closed: by memory, by a bound that is known, or by an exact engine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from formulations.instance import Instance
from formulations.plan import Plan, Shape
from solver.enumeration.enumerate import below
from solver.heuristics.choose import TimeTables
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.result import Proof, Reason, ShapeRecord, max_step_time_ns, objective_weight
from solver.search.closing import ShapeAnswer, ShapeEngine, Stop, lacks_memory

#: Above any step time in ns.
ANY_TIME = 1 << 56


@dataclass(frozen=True)
class Task:
    """An open shape with lower bounds of the objective and the step time of its plans.

    effort: how often the engine may ask whether to stop before it has to; None for ever.
    """

    objective: float
    bound_ns: int
    proof: Proof
    shape: Shape
    effort: int | None = None


@dataclass(frozen=True)
class Closing:
    """The record of a shape, and a plan better than the incumbent if there is one."""

    record: ShapeRecord
    found: tuple[Plan, int] | None = None  #: with its step time in ns


def after(effort: int | None, stop: Stop) -> Stop:
    """Stops as `stop` does, or at the latest after it was asked `effort` times."""
    if effort is None:
        return stop
    left = iter(range(effort))
    return lambda: next(left, None) is None or stop()


def _record(shape: Shape, reason: Reason, proof: Proof, bound_ns: int | None = None) -> ShapeRecord:
    return ShapeRecord(shape=shape, reason=reason, proof=proof, bound_ns=bound_ns)


@dataclass(frozen=True)
class Closer:
    """Closes shapes of one instance; `best` is the objective of the incumbent, None without."""

    instance: Instance
    options: SolveOptions
    engine: ShapeEngine
    times: TimeTables

    @property
    def proof(self) -> Proof:
        """What an exhaustive closing goes by in the log."""
        method = self.options.method
        return method if method in ("cpsat", "milp") else "enumeration"

    @cached_property
    def _scales(self) -> dict[tuple[int, ...], tuple[int | None, float]]:
        """Longest step time allowed and objective per ns, by the nodes used."""
        return {}

    def _scale(self, shape: Shape) -> tuple[int | None, float]:
        known = self._scales.get(shape.nodes_used)
        if known is None:
            known = max_step_time_ns(self.instance, shape), objective_weight(self.instance, shape)
            self._scales[shape.nodes_used] = known
        return known

    def cutoff(self, shape: Shape, best: float | None) -> tuple[int, bool]:
        """Only step times below this are of interest; and whether the limits say so."""
        limit, weight = self._scale(shape)
        better = ANY_TIME
        if best is not None:
            better = math.ceil(best / weight) if weight else 1
        limited = limit is not None and limit < better
        return (limit + 1 if limit is not None and limited else better), limited

    def target(self, shape: Shape, best: float | None) -> int:
        """Bounds of at least this close a shape. The gap is not taken off a limit."""
        cutoff, limited = self.cutoff(shape, best)
        return cutoff if limited else below(cutoff, self.options.gap)

    def beyond(self, task: Task, best: float | None) -> bool:
        """Whether neither this task nor any later one can beat the incumbent."""
        return best is not None and task.objective >= best * (1 - self.options.gap)

    def by_bound(self, task: Task, best: float | None) -> Closing:
        """By the bound of the task if that is beyond a limit or the incumbent; else open."""
        shape, bound_ns = task.shape, task.bound_ns
        _, limited = self.cutoff(shape, best)
        if bound_ns < self.target(shape, best):
            return Closing(_record(shape, "open", task.proof, bound_ns))
        if limited:
            closed_form = task.proof in ("work", "filling", "packing")
            proof: Proof = "limit" if closed_form else task.proof
            return Closing(_record(shape, "infeasible", proof))
        return Closing(_record(shape, "bounded", task.proof, bound_ns))

    def packed(self, tasks: Sequence[Task], best: float | None) -> list[Task]:
        """The tasks; those that whole blocks close with the bound that this takes."""
        below_ns = [self.target(task.shape, best) for task in tasks]
        closed = self.times.refuted([task.shape for task in tasks], below_ns)
        return [
            replace(task, bound_ns=ns, proof="packing") if shut else task
            for task, ns, shut in zip(tasks, below_ns, closed, strict=True)
        ]

    def close(self, task: Task, best: float | None, stop: Stop) -> Closing:
        """Closes one shape, unless `stop` ends that early."""
        shape = task.shape
        if task.bound_ns >= self.target(shape, best):
            return self.by_bound(task, best)
        intervals = Intervals(self.times.costs(shape))
        if lacks_memory(intervals):
            return Closing(_record(shape, "infeasible", "memory"))
        cutoff, limited = self.cutoff(shape, best)
        gap = 0.0 if limited else self.options.gap
        answer = self.engine(intervals, cutoff, gap, after(task.effort, stop))
        record = self._recorded(task, answer, best)
        if answer.plan is None or answer.step_time_ns is None:
            return Closing(record)
        return Closing(record, (answer.plan, answer.step_time_ns))

    def reviewed(self, record: ShapeRecord, best: float | None) -> ShapeRecord:
        """The record of a shape, closed after all if a later incumbent has reached its bound."""
        bound_ns = record.bound_ns
        if record.reason != "open" or best is None or bound_ns is None:
            return record
        closed = bound_ns >= self.target(record.shape, best)
        return record.model_copy(update={"reason": "bounded"}) if closed else record

    def _recorded(self, task: Task, answer: ShapeAnswer, best: float | None) -> ShapeRecord:
        shape = task.shape
        cutoff, limited = self.cutoff(shape, best)
        if not answer.complete:
            if answer.bound_ns > task.bound_ns:
                return _record(shape, "open", self.proof, answer.bound_ns)
            return _record(shape, "open", task.proof, task.bound_ns)
        if answer.plan is None and (limited or best is None):
            return _record(shape, "infeasible", self.proof)
        gap = 0.0 if limited else self.options.gap
        bound_ns = below(answer.step_time_ns or cutoff, gap)
        return _record(shape, "solved" if answer.plan else "bounded", self.proof, bound_ns)
