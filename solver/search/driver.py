"""Solving an instance: first plans, then config after config, until none can hold a better plan."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from formulations.instance import Instance
from formulations.instance.instance import Limits
from formulations.instance.targets import TARGETS, Target
from formulations.plan import Plan
from formulations.space.launch import widened
from formulations.units import NANOSECONDS_PER_SECOND
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import ConfigRecord, OtherTarget, Result, Status, Termination
from solver.search.feasibility_relaxation import LIMIT_S, explain
from solver.search.plan_search import PlanSearch, Report
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


#: Part of the time limit, or of the time that the search took, for all other targets together.
SHARE = 0.05
#: What they have at least, in seconds, where there is no limit.
LEAST_S = 0.5
#: A smaller gain is not worth another framework.
LEAST_GAIN = 0.001


def solve_with_targets(
    instance: Instance,
    options: SolveOptions | None = None,
    progress: Report | None = None,
    study: Study | None = None,
) -> Result:
    """The best plan that the instance's target can launch, see `solve`.

    With what other targets may gain, within the same time limit.
    """
    options = options or SolveOptions()
    # Other targets, with what each would add to the plan space.
    targets = TARGETS if options.method == "exact" else ()
    others = [(target, added) for target in targets for added in widened(instance, target)]
    limit_s = options.time_limit_s
    if not others or limit_s is None:
        result = solve(instance, options, progress, study)
        budget_s = max(LEAST_S, SHARE * result.runtime_s)
    else:
        budget_s = SHARE * limit_s
        shorter = replace(options, time_limit_s=limit_s - budget_s)
        result = solve(instance, shorter, progress, study)
    if result.termination is Termination.INTERRUPTED:
        return result
    gains: list[OtherTarget] = []
    with suppress(KeyboardInterrupt):  # what is known by then is enough
        gains += _gains(result, others, budget_s)
    return replace(result, other_targets=tuple(gains))


def _gains(
    result: Result, others: list[tuple[Target, dict[str, object]]], budget_s: float
) -> Iterator[OtherTarget]:
    """The targets that may be better, each within its part of the time."""
    deadline, objective, instance = Deadline(budget_s), result.objective, result.instance
    if not objective:
        return
    # only better plans than the result's are asked for; of useful sequences no limit says so
    if instance.objective.minimize == "step_time" and result.step_time_ns is not None:
        longest_s = (result.step_time_ns - 1) / NANOSECONDS_PER_SECOND
        instance = instance.but(limits={"max_step_time_s": longest_s})
    elif instance.objective.minimize != "cost_per_useful_sequence":
        highest_usd = math.nextafter(objective, 0) / NANOSECONDS_PER_SECOND / 3600
        instance = instance.but(limits={"max_cost_usd_per_step": highest_usd})
    for i, (target, added) in enumerate(others):
        left_s = (deadline.left_s or 0.0) / (len(others) - i)
        wider = instance.but(search={"target": target, **added})
        seen = seen_within(wider, left_s) if left_s > 0 else (None, None)
        gain, seen_gain = (
            None if value is None else max(0.0, 1 - value / objective) for value in seen
        )
        if gain is None or gain >= LEAST_GAIN:
            yield OtherTarget(
                target=target, gain=gain, found_gain=seen_gain or 0.0, search=_line(target, added)
            )


def seen_within(instance: Instance, limit_s: float) -> tuple[float | None, float | None]:
    """Lower bound of the objective of all plans, and the best one seen, as such a time allows.

    The bound is proved, and infinite where there is no plan. None: the time was too short to look
    at all configurations, or to see a plan.
    """
    search = PlanSearch(instance, SolveOptions(time_limit_s=limit_s))
    with suppress(TimeUp), time_up_after(search.deadline.end_s):
        search.run()
    result = search.result(Termination.TIME_LIMIT)
    no_plan = search.open_list.complete and result.bound is None
    return math.inf if no_plan else result.bound, result.objective


def _line(target: Target, added: dict[str, object]) -> str:
    """The words of `search`, as YAML."""
    words = (
        f"{name}: [{', '.join(map(str, value))}]"
        if isinstance(value, tuple)
        else f"{name}: {value}"
        for name, value in {"target": target, **added}.items()
    )
    return f"{{{', '.join(words)}}}"


@dataclass(frozen=True)
class SearchOverview:
    """What a study knows of a search. closed: number of configurations that are, beside those open.

    spent_s: of processors, by the engine.
    """

    result: Result
    closed: int
    open: tuple[ConfigRecord, ...]
    spent_s: float


def search_overview(study: Study) -> SearchOverview | None:
    """How far `solve` has come, open configs of the lowest bounds first; None: it has not begun."""
    if SOLVE not in study.notes:
        return None
    asked = json.loads(study.notes[SOLVE])
    instance = study.instance.but(limits=Limits.model_validate(asked["limits"]))
    search = PlanSearch(instance, SolveOptions(gap=asked["gap"]), study=study)
    search.recall()
    open_list, closer, spent_s = search.open_list, search.closer, 0.0
    best = search.incumbents.best
    for task in open_list.tasks:
        target_ns = closer.target(task.config, best)
        for answer in closer.answers.every(task.config):
            spent_s += answer.spent_s
            record = open_list.records.get(task.config)
            if record is None or record.reason == "open":
                record = closer.closing(task, answer, answer.question).record
                # Closed to a larger gap, or within other limits
                if record.bound_ns is not None and record.bound_ns < target_ns:
                    record = record.model_copy(update={"reason": "open"})
                open_list.records[task.config] = record
    open_list.unpacked(open_list.open(best), best, lambda: False)
    records = open_list.reviewed(best)
    still_open = [record for record in records if record.reason == "open"]
    still_open.sort(key=lambda record: closer.objective(record.config, record.bound_ns or 0))
    result, closed = search.result(Termination.TIME_LIMIT), len(records) - len(still_open)
    return SearchOverview(result, closed, tuple(still_open), spent_s)
