"""What each change brings: the changed instance solved again, with its proof."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic

from formulations.errors import PlannerError
from formulations.instance import Instance
from solver.comparison import Answer
from solver.explain.what_ifs import WhatIf, what_ifs
from solver.options import SolveOptions
from solver.result import Result, Status
from solver.search.driver import solve


def answers(
    instance: Instance,
    objective: float,
    step_time_s: float,
    options: SolveOptions,
    tell: Callable[[int, int], None],
) -> Iterator[Answer]:
    """Every change, solved within an equal share of the time that is left.

    objective, step_time_s: of the plan that is explained, the former as `solver.result.Result`
    states it. After Ctrl-C there are no more.
    """
    own = objective, step_time_s
    changes = list(what_ifs(instance))
    start_s, limit_s = monotonic(), options.time_limit_s
    for i, one in enumerate(changes):
        tell(i, len(changes))
        left_s = None if limit_s is None else max(0.0, start_s + limit_s - monotonic())
        share_s = None if left_s is None else left_s / (len(changes) - i)
        try:
            result = solve(one.instance, replace(options, time_limit_s=share_s))
        except PlannerError:  # nothing of what is left of the plan space can be planned
            yield Answer(one.change, Status.UNKNOWN)
            continue
        yield _answer(one, instance, own, result)
        if result.termination == "interrupted":
            return


def _answer(one: WhatIf, instance: Instance, own: tuple[float, float], result: Result) -> Answer:
    """What a search says; where all plans stay possible, the one that is explained is known too."""
    objective, step_time_s = own
    found, step_ns = result.objective, result.step_time_ns
    if one.wider and (found is None or found >= objective):
        found, step_ns = objective, round(step_time_s * 1e9)
    if found is None or step_ns is None:
        return Answer(one.change, result.status)
    before, after = (each.workload.global_batch for each in (instance, one.instance))
    least, most = (
        None if value is None else 1 - value / objective * before / after
        for value in (found, result.bound)
    )
    return Answer(one.change, result.status, step_ns / 1e9, least, most)
