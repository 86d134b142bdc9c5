"""The exact optimum of one split problem: tighten, descend, enumerate."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.enumeration.completion import tighten
from solver.enumeration.cuts import Cuts
from solver.enumeration.descent import balanced_split, bound_split, descend
from solver.enumeration.enumerate import Enumerator
from solver.enumeration.problem import Array, Mask, SplitProblem


@dataclass(frozen=True)
class SplitOutcome:
    """Best split [p + 1] found below the cutoff, its simulated time, and whether it is proved.

    `complete`: no split is faster than min(cutoff, step time); with a tolerance, than that time
    less the tolerance.
    """

    split: Array | None
    step_time_ns: int | None
    complete: bool


def solve_split(
    problem: SplitProblem,
    cutoff: int,
    gap: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> SplitOutcome:
    """Least simulated step time below `cutoff`, proved to the relative `gap`."""
    target = below(cutoff, gap)
    allowed = tighten(problem, target)
    if allowed is None:
        return SplitOutcome(None, None, True)
    split, time, cuts = _start(problem, allowed)
    best, best_time = (split, time) if time < cutoff else (None, cutoff)
    target = min(target, below(best_time, gap))
    remaining = tighten(problem, target)
    complete = True
    if remaining is not None and not stop():
        search = Enumerator(problem, remaining, target, cuts)
        complete = search.run(stop)
        if search.best is not None:
            best, best_time = search.best, search.cutoff
    elif remaining is not None:
        complete = False
    return SplitOutcome(best, best_time if best is not None else None, complete)


def below(time_ns: int, gap: float) -> int:
    """Step times of at least this are within the relative `gap` of `time_ns`."""
    return time_ns if not gap else int(np.ceil(time_ns * (1 - gap)))


def _start(problem: SplitProblem, allowed: Mask) -> tuple[Array, int, Cuts]:
    """Best local optimum from the splits of least latency and of least bottleneck."""
    starts = [balanced_split(problem, allowed), bound_split(problem, allowed)]
    runs = [descend(problem, start, allowed) for start in starts[:1] if start is not None]
    return min(runs, key=lambda run: run[1])
