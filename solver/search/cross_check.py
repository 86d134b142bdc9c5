"""Heuristics and exact methods, one after the other, on the same instance."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.space import configs
from solver.comparison import Comparison, Finding
from solver.heuristics.baselines import Found, amp_plan, megatron_rule
from solver.heuristics.local import local_plans
from solver.interrupt import Deadline, Stop, TimeUp, raises
from solver.options import CheckMethod, Method, SolveOptions
from solver.result import Status, Termination, objective_weight
from solver.search.driver import solve
from solver.search.progress import Report
from solver.simulate import step_time_ns


def judged_ns(instance: Instance, plan: Plan) -> int | None:
    """Simulated step time, worked out from the plan alone; None if it does not fit memory."""
    costs = plan_costs(instance, plan)
    return step_time_ns(costs) if (costs.memory_bytes <= costs.limit_bytes).all() else None


def _solved(instance: Instance, options: SolveOptions, progress: Report | None) -> Finding:
    result = solve(instance, options, progress)
    plan = result.plan
    proves = options.method != "minmax" or result.status is Status.OPTIMAL
    return Finding(
        method=options.method,
        status=result.status,
        termination=result.termination,
        config=None if plan is None else plan.config,
        step_time_ns=result.step_time_ns,
        judged_ns=None if plan is None else judged_ns(instance, plan),
        objective=result.objective,
        bound=result.bound if proves else None,
        runtime_s=result.runtime_s,
        requested_gap=options.gap,
    )


def _local(instance: Instance, options: SolveOptions, stop: Stop) -> Iterator[Found]:
    yield from local_plans(instance, configs(instance, raises(stop)), options.seed, stop)


def _megatron(instance: Instance, _: SolveOptions, stop: Stop) -> Iterator[Found]:
    yield megatron_rule(instance, configs(instance, raises(stop)))


def _amp(instance: Instance, _: SolveOptions, stop: Stop) -> Iterator[Found]:
    yield amp_plan(instance, configs(instance, raises(stop)), stop)


#: Ever better plans of what proves nothing, and is no method of `solve`.
HEURISTICS = {
    CheckMethod.LOCAL: _local,
    CheckMethod.MEGATRON: _megatron,
    CheckMethod.AMP: _amp,
}


def _tried(instance: Instance, method: CheckMethod, options: SolveOptions) -> Finding:
    """What a heuristic finds; Ctrl-C ends it with the best plan so far."""
    deadline, ended = Deadline(options.time_limit_s), Termination.HEURISTIC
    plans: list[Found] = []
    try:
        with suppress(TimeUp):
            plans.extend(HEURISTICS[method](instance, options, deadline.over))
        ended = Termination.TIME_LIMIT if deadline.over() else ended
    except KeyboardInterrupt:
        ended = Termination.INTERRUPTED
    plan, step_ns = (plans[-1] if plans else None) or (None, None)
    weight = 0.0 if plan is None else objective_weight(instance, plan.config)
    return Finding(
        method=method,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        termination=ended,
        config=None if plan is None else plan.config,
        step_time_ns=step_ns,
        judged_ns=None if plan is None else judged_ns(instance, plan),
        objective=None if step_ns is None else step_ns * weight,
        bound=None,
        runtime_s=deadline.elapsed_s,
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
            findings.append(_tried(instance, method, options))
        else:
            chosen = replace(options, method=cast(Method, method.value))
            findings.append(_solved(instance, chosen, progress))
        if findings[-1].termination is Termination.INTERRUPTED:
            break
    return Comparison(instance, tuple(findings))
