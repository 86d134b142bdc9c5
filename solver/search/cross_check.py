"""Heuristics and exact methods, one after the other, on the same instance."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from formulations.space import configs
from solver.heuristics.baselines import Found, amp_plans, megatron_rule
from solver.heuristics.local import local_plans
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Deadline, Stop, TimeUp
from solver.options import CheckMethod, Method, SolveOptions
from solver.result import (
    Comparison,
    Finding,
    Result,
    SearchLog,
    Status,
    Termination,
    objective_weight,
)
from solver.search.driver import solve
from solver.search.plan_search import Report
from solver.simulate import step_time_ns


def judged_ns(instance: Instance, plan: Plan) -> int | None:
    """Simulated step time, worked out from the plan alone; None if it does not fit memory."""
    costs = plan_costs(instance, plan)
    return step_time_ns(costs) if (costs.memory_bytes <= costs.limit_bytes).all() else None


Plans = Iterable[Found]  #: ever better ones
#: What proves nothing, and is no method of `solve`: of an instance, its space, options, and a stop.
HEURISTICS: dict[
    CheckMethod, Callable[[Instance, Iterator[Configuration], SolveOptions, Stop], Plans]
] = {
    CheckMethod.LOCAL: lambda i, space, options, stop: local_plans(
        space, TimeTables(i), options.seed, stop
    ),
    CheckMethod.MEGATRON: lambda i, space, options, stop: [megatron_rule(i, space)],
    CheckMethod.AMP: lambda i, space, options, stop: amp_plans(i, space, stop),
}


def _tried(instance: Instance, method: CheckMethod, options: SolveOptions) -> Result:
    """What a heuristic finds; Ctrl-C ends it with the best plan so far."""
    deadline, ended = Deadline(options.time_limit_s), Termination.HEURISTIC
    plans: list[Found] = []
    try:
        with suppress(TimeUp):
            space = configs(instance, deadline.check)
            plans.extend(HEURISTICS[method](instance, space, options, deadline.over))
        ended = Termination.TIME_LIMIT if deadline.over() else ended
    except KeyboardInterrupt:
        ended = Termination.INTERRUPTED
    plan, step_ns = (plans[-1] if plans else None) or (None, None)
    weight = 0.0 if plan is None else objective_weight(instance, plan.config)
    return Result(
        instance=instance,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        termination=ended,
        plan=plan,
        step_time_ns=step_ns,
        objective=None if step_ns is None else step_ns * weight,
        bound=None,
        runtime_s=deadline.elapsed_s,
        log=SearchLog(),
        method=method,
    )


def cross_check(
    instance: Instance,
    methods: Sequence[CheckMethod],
    options: SolveOptions | None = None,
    progress: Report | None = None,
) -> Comparison:
    """What each of the methods finds and proves on its own, in turn.

    The time limit of `options` is for each method; its method is not looked at. After an
    interrupted method no other is begun. Every plan is judged again by the simulator.
    """
    options, findings = options or SolveOptions(), list[Finding]()
    for method in methods:
        if method in HEURISTICS:
            result = _tried(instance, method, options)
        else:
            chosen = replace(options, method=cast(Method, method.value))
            result = solve(instance, chosen, progress)
            if method == CheckMethod.MINMAX and result.status is not Status.OPTIMAL:
                result = replace(result, bound=None)  # which it has not proved
        step_ns = None if result.plan is None else judged_ns(instance, result.plan)
        findings.append(Finding(**vars(result), judged_ns=step_ns))
        if result.termination is Termination.INTERRUPTED:
            break
    return Comparison(instance, tuple(findings))
