"""How one shape is closed: by memory, by a bound that is known, or by an exact engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import process_time

from formulations.instance import Instance
from formulations.plan import Plan, Shape
from solver.enumeration.enumerate import below
from solver.heuristics.choose import TimeTables
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.result import Proof, Reason, ShapeRecord
from solver.search.closing import ShapeAnswer, ShapeEngine, Stop, after, lacks_memory
from solver.search.cutoffs import Cutoffs
from solver.search.shape_answers import Answer, Answers, Question


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


def _record(shape: Shape, reason: Reason, proof: Proof, bound_ns: int | None = None) -> ShapeRecord:
    return ShapeRecord(shape=shape, reason=reason, proof=proof, bound_ns=bound_ns)


def _closer(instance: Instance, options: SolveOptions, engine: ShapeEngine) -> "Closer":
    return Closer(instance, options, engine, TimeTables(instance))


@dataclass(frozen=True)
class Closer:
    """Closes shapes of one instance; `best` is the objective of the incumbent, None without."""

    instance: Instance
    options: SolveOptions
    engine: ShapeEngine
    times: TimeTables
    answers: Answers = field(default_factory=Answers)

    def _proof_of(self, shape: Shape) -> Proof:
        """What an exhaustive closing goes by; models leave what they are not for to enumeration."""
        method = self.options.method
        return method if method in ("cpsat", "milp") and not shape.per_stage else "enumeration"

    @cached_property
    def cutoffs(self) -> Cutoffs:
        """From which step time on plans are of no use."""
        return Cutoffs(self.instance, self.options.gap)

    def beyond(self, task: Task, best: float | None) -> bool:
        """Whether neither this task nor any later one can beat the incumbent."""
        return self.cutoffs.beyond(task.objective, best)

    def by_bound(self, task: Task, best: float | None) -> Closing:
        """By the bound of the task if that is beyond a limit or the incumbent; else open."""
        shape, bound_ns = task.shape, task.bound_ns
        if bound_ns < self.cutoffs.target(shape, best):
            return Closing(_record(shape, "open", task.proof, bound_ns))
        if bound_ns >= self.cutoffs.refused(shape):
            closed_form = task.proof in ("work", "filling", "packing")
            proof: Proof = "limit" if closed_form else task.proof
            return Closing(_record(shape, "infeasible", proof))
        return Closing(_record(shape, "bounded", task.proof, bound_ns))

    def packed(self, tasks: Sequence[Task], best: float | None) -> list[Task]:
        """The tasks; those that whole blocks close with the bound that this takes."""
        below_ns = [self.cutoffs.target(task.shape, best) for task in tasks]
        closed = self.times.refuted([task.shape for task in tasks], below_ns)
        return [
            replace(task, bound_ns=ns, proof="packing") if shut else task
            for task, ns, shut in zip(tasks, below_ns, closed, strict=True)
        ]

    def close(self, task: Task, best: float | None, stop: Stop) -> Closing:
        """Closes one shape, unless `stop` ends that early."""
        known = self.known(task, best)
        if known is not None:
            return known
        answer = self.answer(task, best, stop)
        self.answers.keep(task.shape, answer)
        return self.closing(task, best, answer)

    def known(self, task: Task, best: float | None, early: Answer | None = None) -> Closing | None:
        """As `close`, without any search: by the bound, an early answer, or what a study holds."""
        if task.bound_ns >= self.cutoffs.target(task.shape, best):
            return self.by_bound(task, best)
        question = self.question(task, best)
        if early is None or not early.replies(question):
            early = self.answers.find(task.shape, question)
        return None if early is None else self.closing(task, best, early)

    def needless(self, task: Task, best: float | None) -> bool:
        """Whether a shape is closed by its bound."""
        return self.beyond(task, best) or task.bound_ns >= self.cutoffs.target(task.shape, best)

    def objective(self, task: Task, answer: Answer) -> float | None:
        """Of the plan of an answer."""
        step_ns = None if answer.found is None else answer.found.step_time_ns
        return None if step_ns is None else self.cutoffs.objective(task.shape, step_ns)

    def elsewhere(self) -> "Callable[[], Closer]":
        """The same in another process, which has no time limit and no study of its own."""
        options = replace(self.options, time_limit_s=None)
        return partial(_closer, self.instance, options, self.engine)

    def question(self, task: Task, best: float | None) -> Question:
        """Below which step time to look for the best plan of the shape, and to what gap."""
        return self.cutoffs.question(task.shape, best, task.effort)

    def answer(self, task: Task, best: float | None, stop: Stop) -> Answer:
        """What the engine says, or `stop` lets it say."""
        began_s, question = process_time(), self.question(task, best)
        intervals = Intervals(self.times.costs(task.shape))
        if lacks_memory(intervals):
            return Answer(question, None, process_time() - began_s)
        stopped = False

        def halt() -> bool:
            nonlocal stopped
            stopped = stopped or stop()
            return stopped

        halted = after(task.effort, halt)
        found = self.engine(intervals, question.cutoff_ns, question.gap, halted)
        cut_short = stopped and not found.complete
        return Answer(question, found, process_time() - began_s, cut_short)

    def closing(self, task: Task, best: float | None, answer: Answer) -> Closing:
        """What an answer says now, be it one to another question: one that asked for more."""
        found, question = answer.found, self.question(task, best)
        if found is None:
            return Closing(_record(task.shape, "infeasible", "memory"))
        if not answer.improves(question):
            found = replace(found, plan=None, step_time_ns=None)
        record = self._recorded(task, found, question.cutoff_ns, question.gap)
        if found.plan is None or found.step_time_ns is None:
            return Closing(record)
        return Closing(record, (found.plan, found.step_time_ns))

    def recorded(self, task: Task, answer: Answer) -> ShapeRecord:
        """What an answer says by itself, whatever the incumbent."""
        if answer.found is None:
            return _record(task.shape, "infeasible", "memory")
        return self._recorded(task, answer.found, answer.question.cutoff_ns, answer.question.gap)

    def _recorded(self, task: Task, answer: ShapeAnswer, cutoff: int, gap: float) -> ShapeRecord:
        """What the answer to a question says."""
        shape, proof = task.shape, self._proof_of(task.shape)
        if not answer.complete:
            if answer.bound_ns > task.bound_ns:
                return _record(shape, "open", proof, answer.bound_ns)
            return _record(shape, "open", task.proof, task.bound_ns)
        if answer.plan is None and cutoff >= self.cutoffs.refused(shape):
            return _record(shape, "infeasible", proof)
        bound_ns = below(answer.step_time_ns or cutoff, gap)
        return _record(shape, "solved" if answer.plan else "bounded", proof, bound_ns)
