"""A search for one launch target, and by how much the plans of others may be better at most."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from formulations.instance import Instance
from formulations.instance.targets import TARGETS, Target
from formulations.space.launch import widened
from formulations.units import NANOSECONDS_PER_SECOND
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import OtherTarget, Result, Termination
from solver.search.driver import solve as solve_instance
from solver.search.plan_search import PlanSearch
from solver.search.progress import Report
from solver.study.store import Study

#: Part of the time limit, or of the time that the search took, for all other targets together.
SHARE = 0.05
#: What they have at least, in seconds, where there is no limit.
LEAST_S = 0.5
#: A smaller gain is not worth another framework.
LEAST_GAIN = 0.001


def solve(
    instance: Instance,
    options: SolveOptions | None = None,
    progress: Report | None = None,
    study: Study | None = None,
) -> Result:
    """The best plan that the instance's target can launch, see `solver.search.driver.solve`.

    With what other targets may gain, within the same time limit.
    """
    options = options or SolveOptions()
    # Other targets, with what each would add to the plan space.
    targets = TARGETS if options.method == "exact" else ()
    others = [(target, added) for target in targets for added in widened(instance, target)]
    limit_s = options.time_limit_s
    if not others or limit_s is None:
        result = solve_instance(instance, options, progress, study)
        budget_s = max(LEAST_S, SHARE * result.runtime_s)
    else:
        budget_s = SHARE * limit_s
        shorter = replace(options, time_limit_s=limit_s - budget_s)
        result = solve_instance(instance, shorter, progress, study)
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
    standing = search.standing()
    no_plan = math.inf if standing.complete else None
    return no_plan if standing.bound is None else standing.bound, standing.objective


def _line(target: Target, added: dict[str, object]) -> str:
    """The words of `search`, as YAML."""
    words = (
        f"{name}: [{', '.join(map(str, value))}]"
        if isinstance(value, tuple)
        else f"{name}: {value}"
        for name, value in {"target": target, **added}.items()
    )
    return f"{{{', '.join(words)}}}"
