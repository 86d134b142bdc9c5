"""How far the search has come whose answers a study holds."""

import json
from dataclasses import dataclass

from formulations.instance.instance import Limits
from solver.options import SolveOptions
from solver.result import ShapeRecord, objective_weight, relative_gap
from solver.search.driver import SOLVE, ShapeSearch
from solver.study.store import Study


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
    agenda, closer, spent_s = search.agenda, search.closer, 0.0
    for task in agenda.tasks:
        for answer in closer.answers.every(task.shape):
            spent_s += answer.spent_s
            known = agenda.records.get(task.shape)
            if known is None or known.reason == "open":
                agenda.records[task.shape] = closer.recorded(task, answer)
    found = search.incumbents
    agenda.unpacked(agenda.open(found.best), found.best, lambda: False)
    records = agenda.reviewed(found.best)
    bounds = [*agenda.bounds(records), *([] if found.best is None else [found.best])]
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
