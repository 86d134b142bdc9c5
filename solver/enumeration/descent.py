"""A good split to start from: repeated best single-layer moves on the simulated step time."""

import numpy as np

from solver.enumeration.completion import lane_bounds
from solver.enumeration.cuts import Cuts, evaluate, join_cuts
from solver.enumeration.problem import INFINITY, Array, Mask, SplitProblem


def bound_split(problem: SplitProblem, allowed: Mask, limit: int | None = None) -> Array | None:
    """Split [p + 1] of least latency summed over lanes whose bottleneck terms stay <= `limit`."""
    cost = np.zeros(allowed.shape, dtype=np.int64)
    mask = allowed
    for lane in problem.lanes:
        bounds = lane_bounds(problem, lane)
        cost = cost + bounds.latency
        if limit is not None:
            mask = mask & (bounds.term <= limit)
    p, size = mask.shape[0], mask.shape[-1]
    masked = np.where(mask, cost, INFINITY)
    best = np.full(size, INFINITY)
    best[-1] = 0
    choice = np.zeros((p, size), dtype=np.int64)
    for k in range(p - 1, -1, -1):
        following = masked[k] + best[None, :]
        choice[k] = following.argmin(axis=1)
        best = np.minimum(following[np.arange(size), choice[k]], INFINITY)
    if best[0] >= INFINITY:
        return None
    split = [0]
    for k in range(p):
        split.append(int(choice[k, split[-1]]))
    return np.array(split)


def balanced_split(problem: SplitProblem, allowed: Mask) -> Array | None:
    """Split whose largest bottleneck term is least, by bisection; ties by latency."""
    terms = [lane_bounds(problem, lane).term for lane in problem.lanes]
    low, high = 0, max(int(term[allowed].max(initial=0)) for term in terms)
    best = bound_split(problem, allowed)
    if best is None:
        return None
    while low < high:
        middle = (low + high) // 2
        found = bound_split(problem, allowed, middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best


def neighbours(split: Array, allowed: Mask) -> Array:
    """Allowed splits [N, p + 1] in which one layer more or less moved between two stages."""
    p = len(split) - 1
    rows = []
    for i in range(p):
        for j in range(i + 1, p):
            for step in (-1, 1):
                moved = split.copy()
                moved[i + 1 : j + 1] += step
                rows.append(moved)
    if not rows:
        return np.empty((0, p + 1), dtype=np.int64)
    moves = np.array(rows)
    lengths = np.diff(moves, axis=1)
    moves = moves[(lengths > 0).all(axis=1)]
    stages = np.arange(p)
    return moves[allowed[stages, moves[:, :-1], moves[:, 1:]].all(axis=1)]


def descend(
    problem: SplitProblem, start: Array, allowed: Mask, sweeps: int = 50
) -> tuple[Array, int, Cuts]:
    """Local optimum, its step time, and the critical paths of all splits looked at."""
    first = evaluate(problem, start[None], harvest=True)
    best, time = start, int(first.step_time[0])
    found = [first.cuts]
    for _ in range(sweeps):
        moves = neighbours(best, allowed)
        if not len(moves):
            break
        result = evaluate(problem, moves, harvest=True)
        found.append(result.cuts)
        index = int(result.step_time.argmin())
        if result.step_time[index] >= time:
            break
        best, time = moves[index], int(result.step_time[index])
    return best, time, join_cuts([cuts for cuts in found if cuts is not None])
