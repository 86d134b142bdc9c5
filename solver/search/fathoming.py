"""How one configuration is closed: by memory, by a bound that is known, or by an exact engine.

An engine answers questions about single configurations: which plan is the best below a cutoff, from
which on plans are of no use for limits, incumbent and gap. Answers are passed on and kept.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from time import process_time
from typing import Any

from pydantic import TypeAdapter

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from solver.enumeration.engine import ConfigAnswer
from solver.enumeration.enumerate import below
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop, after
from solver.options import SolveOptions
from solver.result import ConfigRecord, Proof, Reason, longest_step_ns, objective_weight
from solver.search.enumeration import MOST_GAP, ConfigEngine, lacks_memory
from solver.simulate import step_time_ns
from solver.study.store import Shelf, Study


@dataclass(frozen=True)
class Question:
    """Which plans of a config are looked for: below a step time, to a gap, with so much effort.

    effort: how often the engine may ask whether to stop before it has to; None for ever.
    """

    cutoff_ns: int
    gap: float
    effort: int | None = None


@dataclass(frozen=True)
class Answer:
    """What is known after a question; found is None where no split has the memory.

    cut_short: it was stopped before its effort was spent, so another time it may say more.
    """

    question: Question
    found: ConfigAnswer | None
    spent_s: float = 0.0
    cut_short: bool = False

    def replies(self, question: Question) -> bool:
        """Whether it is the answer to another question, too, to the letter or as nothing is found.

        Where nothing is below a cutoff, nothing is below a lower one.
        """
        if self.found is None or self.question == question:
            return True
        asked = self.question
        wide = asked.cutoff_ns >= question.cutoff_ns and asked.gap <= question.gap
        return wide and self.found.complete and not self.improves(question)

    def improves(self, question: Question) -> bool:
        """Whether it holds a plan below the cutoff."""
        step_ns = None if self.found is None else self.found.step_time_ns
        return step_ns is not None and step_ns < question.cutoff_ns


_ANSWERS = TypeAdapter(Answer)


class Answers:
    """The answers that a study holds on configurations of one instance."""

    def __init__(self, study: Study | None = None) -> None:
        self._shelf = Shelf(study, "config", _ANSWERS)

    def find(self, config: Configuration, question: Question) -> Answer | None:
        """An answer to the question; StudyError for a plan that is not what it is said to be."""
        answers = [answer for answer in self.every(config) if answer.replies(question)]
        exact = [answer for answer in answers if answer.question == question]
        answer = next(iter([*exact, *answers]), None)
        if answer is not None:
            self._plan(answer)
        return answer

    def every(self, config: Configuration | None = None) -> Iterator[Answer]:
        """All that the study holds, on a config or on any, one at a time, plans unchecked."""
        return self._shelf.every(config and config.model_dump(mode="json"))

    def plans(self) -> Iterator[tuple[Plan, int]]:
        """The plans of all answers, with their step times in ns; StudyError as in `find`."""
        return (plan for answer in self.every() if (plan := self._plan(answer)))

    def _plan(self, answer: Answer) -> tuple[Plan, int] | None:
        """The plan of an answer with its step time in ns, simulated before it is believed."""
        best = answer.found
        if best is None or best.plan is None or best.step_time_ns is None:
            return None
        check_plan(self._shelf, best.plan, best.step_time_ns)
        return best.plan, best.step_time_ns

    def keep(self, config: Configuration, answer: Answer) -> None:
        """Adds a whole answer to the study."""
        if not answer.cut_short:
            self._shelf.keep(config.model_dump(mode="json"), asdict(answer.question), answer)


def check_plan(shelf: Shelf[Any], plan: Plan, step_ns: int) -> None:
    """A plan that a study holds is simulated before it is believed; StudyError if it is not so."""
    shelf.check("plan", step_ns, lambda instance: step_time_ns(plan_costs(instance, plan)))


#: Above any step time in ns: more than twice what `formulations.costs.magnitude` lets through.
ANY_TIME = 1 << 56
#: Of a product of floats and its quotient, relative; below a ns wherever floats count whole ones.
NOISE = 4 * sys.float_info.epsilon


@dataclass(frozen=True)
class Task:
    """An open configuration with lower bounds of the objective and the step time of its plans.

    effort: how often the engine may ask whether to stop before it has to; None for ever.
    """

    objective: float
    bound_ns: int
    proof: Proof
    config: Configuration
    effort: int | None = None


@dataclass(frozen=True)
class Closing:
    """The record of a configuration, and a plan better than the incumbent if there is one."""

    record: ConfigRecord
    found: tuple[Plan, int] | None = None  #: with its step time in ns


def _record(
    config: Configuration, reason: Reason, proof: Proof, bound_ns: int | None = None
) -> ConfigRecord:
    return ConfigRecord(config=config, reason=reason, proof=proof, bound_ns=bound_ns)


@dataclass(frozen=True)
class Closer:
    """Closes configs of one instance; `best` is the objective of the incumbent, None without."""

    instance: Instance
    options: SolveOptions
    engine: ConfigEngine
    times: TimeTables
    answers: Answers = field(default_factory=Answers)
    #: Shortest step time beyond the limits and objective per ns, by the nodes used.
    _scales: dict[tuple[int, ...], tuple[int, float]] = field(default_factory=dict)

    # From which step time on plans are of no use

    def _scale(self, config: Configuration) -> tuple[int, float]:
        scale = self._scales.get(config.nodes_used)
        if scale is None:
            longest = longest_step_ns(self.instance, config.nodes_used)
            refused = ANY_TIME if longest is None else min(longest + 1, ANY_TIME)
            scale = refused, objective_weight(self.instance, config)
            self._scales[config.nodes_used] = scale
        return scale

    def refused(self, config: Configuration) -> int:
        """Step times of at least this are beyond the limits, or any."""
        return self._scale(config)[0]

    def objective(self, config: Configuration, step_time_ns: int) -> float:
        """Of a plan of a configuration."""
        return step_time_ns * self._scale(config)[1]

    def _reached(self, config: Configuration, best: float | None, gap: float) -> int:
        """Step times of at least this are no better than the incumbent, up to a gap.

        On nodes without rent any plan is better than an incumbent that costs something.
        """
        _, weight = self._scale(config)
        if best is None or not weight:
            return 0 if best == 0 else ANY_TIME
        return min(ANY_TIME, math.ceil(best * (1 - gap) * (1 - NOISE) / weight))

    def target(self, config: Configuration, best: float | None) -> int:
        """Bounds of at least this close a configuration. The gap is not taken off a limit."""
        return min(self.refused(config), self._reached(config, best, self.options.gap))

    def question(self, task: Task, best: float | None) -> Question:
        """Below which step time to look for the best plan, and to what gap. A limit has none."""
        refused, reached = self.refused(task.config), self._reached(task.config, best, 0.0)
        if refused < reached:
            return Question(refused, 0.0, task.effort)
        return Question(reached, min(self.options.gap, MOST_GAP), task.effort)

    def reviewed(self, record: ConfigRecord, best: float | None) -> ConfigRecord:
        """The record of a config, closed after all if a later incumbent has reached its bound."""
        bound_ns = record.bound_ns
        if record.reason != "open" or best is None or bound_ns is None:
            return record
        closed = bound_ns >= self.target(record.config, best)
        return record.model_copy(update={"reason": "bounded"}) if closed else record

    def stated(self, record: ConfigRecord, best: float | None, bound: float | None) -> ConfigRecord:
        """The record, with no higher a bound than the outcome rests on, its own reason or `bound`.

        So a plan file claims no more than it has to, and is proved again sooner.
        """
        weight = self._scale(record.config)[1]
        if record.bound_ns is None or bound is None or not weight:
            return record
        needed = math.ceil(bound / weight)
        if record.reason == "bounded":
            needed = max(needed, self.target(record.config, best))
        return record.model_copy(update={"bound_ns": min(record.bound_ns, needed)})

    # How configurations are closed

    def beyond(self, task: Task, best: float | None) -> bool:
        """Whether neither this task nor any later one can beat the incumbent."""
        return best is not None and task.objective >= best * (1 - self.options.gap)

    def by_bound(self, task: Task, best: float | None) -> Closing:
        """By the bound of the task if that is beyond a limit or the incumbent; else open."""
        config, bound_ns = task.config, task.bound_ns
        if bound_ns < self.target(config, best):
            return Closing(_record(config, "open", task.proof, bound_ns))
        if bound_ns >= self.refused(config):
            closed_form = task.proof in ("work", "filling", "packing")
            proof: Proof = "limit" if closed_form else task.proof
            return Closing(_record(config, "infeasible", proof))
        return Closing(_record(config, "bounded", task.proof, bound_ns))

    def close(self, task: Task, best: float | None, stop: Stop) -> Closing:
        """Closes one configuration, unless `stop` ends that early."""
        closing = self.known(task, best)
        if closing is not None:
            return closing
        answer = self.answer(task, best, stop)
        self.answers.keep(task.config, answer)
        return self.closing(task, answer, answer.question)

    def known(self, task: Task, best: float | None, early: Answer | None = None) -> Closing | None:
        """As `close`, without any search: by the bound, an early answer, or what a study holds."""
        if task.bound_ns >= self.target(task.config, best):
            return self.by_bound(task, best)
        question = self.question(task, best)
        if early is None or not early.replies(question):
            early = self.answers.find(task.config, question)
        return None if early is None else self.closing(task, early, question)

    def answer(self, task: Task, best: float | None, stop: Stop) -> Answer:
        """What the engine says, or `stop` lets it say."""
        began_s, question = process_time(), self.question(task, best)
        intervals = Intervals(self.times.costs(task.config))
        if lacks_memory(intervals):
            return Answer(question, None, process_time() - began_s)
        stopped = False

        def halt() -> bool:
            nonlocal stopped
            stopped = stopped or stop()
            return stopped

        halted = after(task.effort, halt)
        config_answer = self.engine(intervals, question.cutoff_ns, question.gap, halted)
        cut_short = stopped and not config_answer.complete
        return Answer(question, config_answer, process_time() - began_s, cut_short)

    def closing(self, task: Task, answer: Answer, question: Question) -> Closing:
        """What an answer says of a question, be it one to another question: one that asks more."""
        config, config_answer = task.config, answer.found
        if config_answer is None:
            return Closing(_record(config, "infeasible", "memory"))
        plan = None
        if config_answer.plan is not None and answer.improves(question):
            plan = config_answer.plan, config_answer.step_time_ns or 0
        proof: Proof = "enumeration"
        if self.options.method in ("cpsat", "milp") and not config.per_stage:
            proof = self.options.method  # models leave what they are not for to enumeration
        if not config_answer.complete:
            if config_answer.bound_ns <= task.bound_ns:
                return Closing(_record(config, "open", task.proof, task.bound_ns), plan)
            return Closing(_record(config, "open", proof, config_answer.bound_ns), plan)
        if plan is None and question.cutoff_ns >= self.refused(config):
            return Closing(_record(config, "infeasible", proof))
        bound_ns = below(plan[1] if plan else question.cutoff_ns, question.gap)
        return Closing(_record(config, "solved" if plan else "bounded", proof, bound_ns), plan)
