"""The exact optimum of one split problem: tighten, descend, enumerate."""

from collections.abc import Callable
from dataclasses import dataclass

from solver.enumeration.completion import Frontier, frontier, tighten
from solver.enumeration.descent import best_start
from solver.enumeration.enumerate import Enumerator, below
from solver.enumeration.layered import Layers, build_layers
from solver.enumeration.problem import Array, SplitProblem


@dataclass(frozen=True)
class SplitOutcome:
    """What is known of a problem.

    arcs, split, step_time_ns: the best below the cutoff [p], [p + 1], ns; None if none was found.
    bound_ns: no split is faster, unless it is `step_time_ns`; at least the cutoff or step time,
    less the gap, when `complete`.
    """

    arcs: Array | None
    split: Array | None
    step_time_ns: int | None
    bound_ns: int
    complete: bool


def _fronts(problem: SplitProblem, layers: Layers, cutoff: int) -> list[Frontier]:
    return [frontier(layers, lane, cutoff) for lane in range(problem.num_lanes)]


def solve_split(
    problem: SplitProblem,
    cutoff: int,
    gap: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> SplitOutcome:
    """Least simulated step time below `cutoff`, proved to the relative `gap`."""
    target = below(cutoff, gap)
    layers = tighten(problem, build_layers(problem, target), target)
    if layers is None:
        return SplitOutcome(None, None, None, target, True)
    fronts = _fronts(problem, layers, target)
    arcs, split, time, cuts = best_start(problem, layers, fronts)
    best = (arcs, split) if time < cutoff else None
    best_time = min(time, cutoff)
    if below(best_time, gap) < target:
        target = below(best_time, gap)
        layers = tighten(problem, layers, target)
        fronts = _fronts(problem, layers, target) if layers else []
    bound = target
    if layers is not None:
        search = Enumerator(problem, layers, fronts, target, cuts, gap)
        bound = search.run(stop)
        if search.best is not None and search.best_time is not None:
            best, best_time = search.best, search.best_time
    complete = bound >= min(target, below(best_time, gap))
    if best is None:
        return SplitOutcome(None, None, None, bound, complete)
    return SplitOutcome(*best, best_time, min(bound, best_time), complete)
