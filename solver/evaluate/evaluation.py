"""A run judged: as a plan, against the best one, change by change."""

from collections.abc import Callable
from contextlib import suppress

from formulations.errors import PlanError
from formulations.instance import Instance
from solver.comparison import Answer, Evaluation
from solver.document import PlanDocument
from solver.evaluate.changes import single_changes
from solver.evaluate.checked import checked
from solver.evaluate.run_plan import Planned, judged
from solver.options import SolveOptions
from solver.result import Result

Solve = Callable[[Instance, SolveOptions], Result]


def predicted(own: Planned) -> tuple[PlanDocument, Evaluation]:
    """The plan file of a run, and which limits it breaks. Raises PlanError for what is no plan."""
    result = judged(own.instance, own.plan)
    document, broken, others = checked(result)
    if others:
        raise PlanError(own.run.source, others[0], "a plan that verify accepts")
    assert result.objective is not None
    return document, Evaluation(result.objective, broken)


def compared(own: Planned, alone: Evaluation, options: SolveOptions, solve: Solve) -> Evaluation:
    """The same with the best plan in the run's settings, and what each decision would bring."""
    best = solve(own.instance, options)
    changes: tuple[Answer, ...] = ()
    if best.plan is not None:
        with suppress(KeyboardInterrupt):
            changes = tuple(single_changes(own, alone.objective, best.plan))
    return Evaluation(alone.objective, alone.broken, best, changes)
