"""The exact min-max split: what FASOP's heuristic aims at, without its local optima."""

import numpy as np

from solver.graph.problem import INFINITY, Array, SplitProblem
from solver.heuristics.balance import Split


def stage_times(problem: SplitProblem) -> Array:
    """[p, n, n] forward + backward of one micro-batch on the slowest replica, one node order.

    INFINITY for layers that the stage may not hold.
    """
    work = problem.forward + problem.backward
    rows = [
        np.where(stage.allowed[0], work[stage.column[0]].max(axis=0), INFINITY)
        for stage in problem.stages
    ]
    return np.stack(rows)


def exact_minmax(problem: SplitProblem) -> tuple[Split, int] | None:
    """A split whose largest stage time is least, and that time; None if no split is allowed.

    Among those, one of the least sum of stage times. Two dynamic programs over (stage, layer),
    O(p L^2): the least largest time, then the least sum of stages that keep to it.
    """
    times = stage_times(problem)
    p, size = times.shape[0], times.shape[-1]
    worst = np.full(size, INFINITY)
    worst[-1] = 0
    for k in range(p - 1, -1, -1):
        worst = np.maximum(times[k], worst[None, :]).min(axis=1)
    limit = int(worst[0])
    if limit >= INFINITY:
        return None
    kept = np.where(times <= limit, times, INFINITY)
    total = np.full(size, INFINITY)
    total[-1] = 0
    choice = np.zeros((p, size), dtype=np.int64)
    for k in range(p - 1, -1, -1):
        sums = kept[k] + total[None, :]
        choice[k] = sums.argmin(axis=1)
        total = np.minimum(sums.min(axis=1), INFINITY)
    split = [0]
    for k in range(p):
        split.append(int(choice[k, split[-1]]))
    return tuple(split), limit
