"""The planners that are compared: rules of thumb, the min-max heuristic, the exact search."""

import time
from collections.abc import Callable

from formulations.instance import Instance
from formulations.space import configs
from solver.heuristics.baselines import Found, equal_split_plan, megatron_rule, minmax_plan
from solver.options import SolveOptions
from solver.result import Result, SearchLog, Status, Termination, objective_weight
from solver.search.driver import solve

Method = Callable[[Instance, SolveOptions], Result]
Stop = Callable[[], bool]


def _stop(options: SolveOptions, start_s: float) -> Stop:
    limit_s = options.time_limit_s
    return lambda: limit_s is not None and time.perf_counter() - start_s > limit_s


def _outcome(
    instance: Instance, find: Callable[[Instance, Stop], Found], options: SolveOptions
) -> Result:
    start_s = time.perf_counter()
    stop = _stop(options, start_s)
    found = find(instance, stop)
    runtime_s = time.perf_counter() - start_s
    ended = Termination.TIME_LIMIT if stop() else Termination.HEURISTIC
    plan, step_time_ns = found or (None, None)
    objective = found and found[1] * objective_weight(instance, found[0].config)
    return Result(
        instance=instance,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        termination=ended,
        plan=plan,
        step_time_ns=step_time_ns,
        objective=objective,
        bound=None,
        runtime_s=runtime_s,
        log=SearchLog(),
        method="minmax",
    )


def minmax(instance: Instance, options: SolveOptions) -> Result:
    """Min-max splits of all configurations and FASOP's node orders, the best by simulation."""
    return _outcome(instance, lambda i, stop: minmax_plan(i, configs(i), stop=stop), options)


def equal(instance: Instance, options: SolveOptions) -> Result:
    """Even splits of the same configurations and orders, the best by simulation."""
    return _outcome(instance, lambda i, stop: equal_split_plan(i, configs(i), stop=stop), options)


def megatron(instance: Instance, options: SolveOptions) -> Result:
    """The one plan of Megatron's rule of thumb."""
    return _outcome(instance, lambda i, _: megatron_rule(i, configs(i)), options)


def exact(instance: Instance, options: SolveOptions) -> Result:
    """The exact search, with its proved bound."""
    return solve(instance, options)


METHODS: dict[str, Method] = {
    "minmax": minmax,
    "equal": equal,
    "megatron": megatron,
    "exact": exact,
}
