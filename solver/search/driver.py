"""Solving an instance: first plans, then config after config, until none can hold a better plan."""

import json
from dataclasses import dataclass, replace

from formulations.instance import Instance
from formulations.instance.instance import Limits
from formulations.plan import Plan
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import Result, Status, Termination, objective_weight
from solver.search.feasibility_relaxation import LIMIT_S, explain
from solver.search.plan_search import PlanSearch, Standing
from solver.search.progress import Report
from solver.study.store import Study

#: What a study notes of a search: the gap and the limits that it was asked for.
SOLVE = "solve"


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
    search = PlanSearch(instance, options, progress, study=study)
    search.incumbents.offer(start)
    termination, space = Termination.TIME_LIMIT, search.space
    try:
        with time_up_after(search.deadline.end_s):
            if options.method == "minmax":
                search.incumbents.baselines(space)
            else:
                if options.time_limit_s is not None:  # then no run is like another
                    search.recall()
                search.first_plans(space)
                search.close()
        if options.method == "minmax" and not search.deadline.over():
            termination = Termination.HEURISTIC
    except TimeUp:
        pass
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    result = search.result(termination)
    if result.status is Status.INFEASIBLE:
        left_s = search.deadline.end_s
        why = explain(instance, min(LIMIT_S, left_s or LIMIT_S))
        result = replace(result, infeasibility=why)
    if options.write_model is not None:
        from solver.search.by_model import write_model

        write_model(options, search.times, result.plan, search.pool)
    return result


@dataclass(frozen=True)
class SearchOverview(Standing):
    """What a study knows of a search. spent_s: of processors, by the engine."""

    spent_s: float

    @property
    def closed(self) -> int:
        """Configurations that are."""
        return len(self.records) - len(self.open)


def search_overview(study: Study, notes: dict[str, str]) -> SearchOverview | None:
    """How far `solve` has come, open configs of the lowest bounds first; None: it has not begun."""
    if SOLVE not in notes:
        return None
    asked = json.loads(notes[SOLVE])
    instance = study.instance.but(limits=Limits.model_validate(asked["limits"]))
    search = PlanSearch(instance, SolveOptions(gap=asked["gap"]), study=study)
    search.recall()
    open_list, closer, spent_s = search.open_list, search.closer, 0.0
    for task in open_list.tasks:
        for answer in closer.answers.every(task.config):
            spent_s += answer.spent_s
            record = open_list.records.get(task.config)
            if record is None or record.reason == "open":
                open_list.records[task.config] = closer.closing(
                    task, answer, answer.question
                ).record
    best = search.incumbents.best
    open_list.unpacked(open_list.open(best), best, lambda: False)
    standing = search.standing()
    weighted = {
        record.config: (record.bound_ns or 0) * objective_weight(instance, record.config)
        for record in standing.records
    }
    records = sorted(standing.records, key=lambda record: weighted[record.config])
    return SearchOverview(**vars(replace(standing, records=tuple(records))), spent_s=spent_s)
