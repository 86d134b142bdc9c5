"""The planners that are compared: rules of thumb, the min-max heuristic, the exact search."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from formulations.instance import Instance
from formulations.plan import Shape
from solver.heuristics.baselines import Found, equal_split_plan, megatron_rule, minmax_plan
from solver.options import SolveOptions
from solver.result import Status, Termination, objective_weight
from solver.search.driver import solve
from solver.search.shapes import shapes


@dataclass(frozen=True)
class Outcome:
    """What one method found. objective and bound as in `solver.result.Result`."""

    status: str
    termination: str
    shape: Shape | None
    step_time_ns: int | None
    objective: float | None
    bound: float | None
    runtime_s: float


Method = Callable[[Instance, SolveOptions], Outcome]
Stop = Callable[[], bool]


def _stop(options: SolveOptions, start_s: float) -> Stop:
    limit_s = options.time_limit_s
    return lambda: limit_s is not None and time.perf_counter() - start_s > limit_s


def _outcome(
    instance: Instance, find: Callable[[Instance, Stop], Found], options: SolveOptions
) -> Outcome:
    start_s = time.perf_counter()
    stop = _stop(options, start_s)
    found = find(instance, stop)
    runtime_s = time.perf_counter() - start_s
    ended = Termination.TIME_LIMIT if stop() else Termination.HEURISTIC
    if found is None:
        return Outcome(Status.UNKNOWN, ended, None, None, None, None, runtime_s)
    plan, step_time_ns = found
    return Outcome(
        status=Status.FEASIBLE,
        termination=ended,
        shape=plan.shape,
        step_time_ns=step_time_ns,
        objective=step_time_ns * objective_weight(instance, plan.shape),
        bound=None,
        runtime_s=runtime_s,
    )


def minmax(instance: Instance, options: SolveOptions) -> Outcome:
    """Min-max splits of all shapes and FASOP's node orders, the best by simulation."""
    return _outcome(instance, lambda i, stop: minmax_plan(i, shapes(i), stop=stop), options)


def equal(instance: Instance, options: SolveOptions) -> Outcome:
    """Even splits of the same shapes and orders, the best by simulation."""
    return _outcome(instance, lambda i, stop: equal_split_plan(i, shapes(i), stop=stop), options)


def megatron(instance: Instance, options: SolveOptions) -> Outcome:
    """The one plan of Megatron's rule of thumb."""
    return _outcome(instance, lambda i, _: megatron_rule(i, shapes(i)), options)


def exact(instance: Instance, options: SolveOptions) -> Outcome:
    """The exact search, with its proved bound."""
    result = solve(instance, options)
    return Outcome(
        status=result.status,
        termination=result.termination,
        shape=None if result.plan is None else result.plan.shape,
        step_time_ns=result.step_time_ns,
        objective=result.objective,
        bound=result.bound,
        runtime_s=result.runtime_s,
    )


METHODS: dict[str, Method] = {
    "minmax": minmax,
    "equal": equal,
    "megatron": megatron,
    "exact": exact,
}
