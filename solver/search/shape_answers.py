"""Answers of an engine to questions about single shapes, as they are passed on and kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from pydantic import TypeAdapter

from formulations.costs.plan_costs import plan_costs
from formulations.errors import PlanError
from formulations.plan import Plan, Shape
from solver.files import canonical_json
from solver.search.closing import ShapeAnswer
from solver.simulate import step_time_ns
from solver.study.store import Study, StudyRecord


@dataclass(frozen=True)
class Question:
    """Which plans of a shape are looked for: below a step time, to a gap, with so much effort.

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
    found: ShapeAnswer | None
    spent_s: float = 0.0
    cut_short: bool = False

    def replies(self, question: Question) -> bool:
        """Whether it is the answer to another question, too, to the letter or as nothing is found.

        Where nothing is below a cutoff, nothing is below a lower one.
        """
        if self.found is None or self.question == question:
            return True
        own = self.question
        wide = own.cutoff_ns >= question.cutoff_ns and own.gap <= question.gap
        return wide and self.found.complete and not self.improves(question)

    def improves(self, question: Question) -> bool:
        """Whether it holds a plan below the cutoff."""
        step_ns = None if self.found is None else self.found.step_time_ns
        return step_ns is not None and step_ns < question.cutoff_ns


_ANSWERS = TypeAdapter(Answer)
#: In a study.
KIND = "shape"


@dataclass(frozen=True)
class Answers:
    """The answers that a study holds on shapes of one instance."""

    study: Study | None = None

    def find(self, shape: Shape, question: Question) -> Answer | None:
        """An answer to the question; StudyError for a plan that is not what it is said to be."""
        if self.study is None:
            return None
        known = [answer for answer in self.every(shape) if answer.replies(question)]
        exact = [answer for answer in known if answer.question == question]
        answer = next(iter([*exact, *known]), None)
        if answer is not None:
            self._plan(answer)
        return answer

    def every(self, shape: Shape) -> list[Answer]:
        """All that the study holds on a shape, plans unchecked."""
        assert self.study is not None
        return [self._read(one) for one in self.study.find(KIND, _key(shape))]

    def all(self) -> Iterator[Answer]:
        """All that the study holds, one at a time."""
        return map(self._read, [] if self.study is None else self.study.every(KIND))

    def plans(self) -> Iterator[tuple[Plan, int]]:
        """The plans of all answers, with their step times in ns; StudyError as in `find`."""
        return (plan for answer in self.all() if (plan := self._plan(answer)))

    def _plan(self, answer: Answer) -> tuple[Plan, int] | None:
        """The plan of an answer with its step time in ns, simulated before it is believed."""
        best = answer.found
        if best is None or best.plan is None or best.step_time_ns is None:
            return None
        assert self.study is not None
        check_plan(self.study, KIND, best.plan, best.step_time_ns)
        return best.plan, best.step_time_ns

    def _read(self, record: StudyRecord) -> Answer:
        assert self.study is not None
        return self.study.read(KIND, record, _ANSWERS)

    def keep(self, shape: Shape, answer: Answer) -> None:
        """Adds a whole answer to the study."""
        if self.study is None or answer.cut_short:
            return
        variant = canonical_json(_ANSWERS.dump_python(answer)["question"])
        fields = _ANSWERS.dump_json(answer).decode()
        self.study.keep(KIND, _key(shape), variant, fields)


def check_plan(study: Study, kind: str, plan: Plan, step_ns: int) -> None:
    """A plan that a study holds is simulated before it is believed; StudyError if it is not so."""
    try:
        took_ns = step_time_ns(plan_costs(study.instance, plan))
    except (PlanError, LookupError):
        raise study.damaged(kind, "a plan that does not fit the instance") from None
    if took_ns != step_ns:
        raise study.damaged(kind, f"a plan of {step_ns} ns takes {took_ns} ns")


def _key(shape: Shape) -> str:
    return sha256(canonical_json(shape.model_dump(mode="json")).encode()).hexdigest()
