"""Bounds on what the rest of a split must still cost.

Latency plus bottleneck. For every stage i of a lane, with m micro-batches, w = min(p-1-i, m-1)
in 1F1B and w = 0 in GPipe, and latency = all f_k + b_k + all transfers, both ways:

    end of the last backward of stage 0 >= latency + (m - 1)(f_i + b_i) - w min(f_i, b_i).

Proof. 1F1B: stage i runs B(0) after w + 1 forwards if w = p-1-i. Path one: micro-batch 0 down to
the last stage and back to B_i(0); from there stage i has m - 1 backwards and m - 1 - w forwards
left; then the last backward goes up to stage 0. Its length is latency + (m-1)(f_i+b_i) - w f_i.
Path two: stage i from F_i(0) to F_i(m-1), which includes all m forwards and the m - 1 - w
backwards before F_i(m-1), then micro-batch m-1 down, back and up: latency + (m-1)(f_i+b_i)
- w b_i. If m - 1 < p-1-i, all forwards of stage i come first and w = m - 1 gives the same two
paths. GPipe: micro-batch 0 down to i, all forwards of i, the last down and back to the first
backward of i, all backwards of i, the last up: latency + (m-1)(f_i+b_i).
The step ends no earlier than stage 0's tail after that.
"""

from dataclasses import dataclass

import numpy as np

from solver.enumeration.problem import INFINITY, Array, Lane, Mask, SplitProblem


@dataclass(frozen=True)
class LaneBounds:
    """Additive costs of one lane: latency [p, n, n] with stage 0's tail, term [p, n, n]."""

    latency: Array
    term: Array
    sends: int  #: all transfers, both ways


def lane_bounds(problem: SplitProblem, lane: Lane) -> LaneBounds:
    """Parts of the latency-plus-bottleneck bound."""
    latency = lane.total.copy()
    latency[0] += problem.tail[0]
    return LaneBounds(
        latency, lane.bottleneck(problem.schedule == "gpipe"), 2 * int(lane.send.sum())
    )


def to_go(cost: Array, allowed: Mask) -> Array:
    """[.., p + 1, n] least sum of `cost` [.., p, n, n] over stages k.. for layers a..L."""
    stages, size = cost.shape[-3], cost.shape[-1]
    best = np.full((*cost.shape[:-3], stages + 1, size), INFINITY)
    best[..., stages, size - 1] = 0
    masked = np.where(allowed, cost, INFINITY)
    for k in range(stages - 1, -1, -1):
        following = masked[..., k, :, :] + best[..., k + 1, None, :]
        best[..., k, :] = np.minimum(following.min(axis=-1), INFINITY)
    return best


def so_far(cost: Array, allowed: Mask) -> Array:
    """[p + 1, n] least sum of `cost` [p, n, n] over stages ..k-1 for layers 0..a."""
    stages, size = cost.shape[0], cost.shape[-1]
    best = np.full((stages + 1, size), INFINITY)
    best[0, 0] = 0
    masked = np.where(allowed, cost, INFINITY)
    for k in range(stages):
        best[k + 1] = np.minimum((best[k][:, None] + masked[k]).min(axis=0), INFINITY)
    return best


def _useful(problem: SplitProblem, lane: Lane, allowed: Mask, cutoff: int) -> Mask:
    """Intervals through which a split with a bound below `cutoff` may go.

    The device of stage k cannot start before micro-batch 0 has come down, then works for m
    (f + b), then its tail follows; and the latency-plus-bottleneck bound holds with i = k.
    """
    bounds = lane_bounds(problem, lane)
    before, after = so_far(bounds.latency, allowed), to_go(bounds.latency, allowed)
    through = before[:-1, :, None] + bounds.latency + after[1:, None, :] + bounds.sends
    useful = allowed & (through + bounds.term < cutoff)
    down = so_far(lane.forward, allowed)[:-1, :]
    down[1:] = np.minimum(down[1:] + np.cumsum(lane.send)[:, None], INFINITY)
    busy = down[:, :, None] + lane.micro_batches * lane.total + problem.tail
    return useful & (busy < cutoff)


def tighten(problem: SplitProblem, cutoff: int) -> Mask | None:
    """Intervals that a split faster than `cutoff` may use; None if there is none.

    Repeated until nothing changes: fewer intervals raise the latencies, which rule out more.
    """
    allowed = problem.allowed
    left = -1
    while left != (count := int(allowed.sum())):
        if not allowed.any(axis=(1, 2)).all():
            return None
        left = count
        for lane in problem.lanes:
            allowed = allowed & _useful(problem, lane, allowed, cutoff)
    return allowed


def root_bound(problem: SplitProblem, low: int, high: int) -> int:
    """Largest cutoff in (low, high] that `tighten` refutes, to 0.1 %; `low` if none is."""
    while high - low > max(1, low // 1000):
        middle = (low + high + 1) // 2
        if tighten(problem, middle) is None:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Frontier:
    """Pareto points of (latency, largest term) of completions, per stage and first layer.

    latency, term: [p + 1, n, K], unused points INFINITY.
    """

    latency: Array
    term: Array

    def bound(self, stage: int, layer: Array, latency: Array, term: Array) -> Array:
        """[N] least latency + max(term) over completions of prefixes that end before `layer`."""
        terms = np.maximum(term[:, None], self.term[stage, layer])
        whole: Array = (latency[:, None] + self.latency[stage, layer] + terms).min(axis=1)
        return whole


def _pareto(latency: Array, term: Array, room: int) -> tuple[Array, Array]:
    """Undominated points with latency + term below `room`, sorted by latency."""
    keep = latency + term < room
    latency, term = latency[keep], term[keep]
    order = np.lexsort((term, latency))
    latency, term = latency[order], term[order]
    first = np.ones(len(term), dtype=bool)
    first[1:] = term[1:] < np.minimum.accumulate(term)[:-1]
    return latency[first], term[first]


def frontier(
    problem: SplitProblem, lane: Lane, allowed: Mask, cutoff: int, most: int = 64
) -> Frontier:
    """Completion frontiers of one lane, without points that no prefix below `cutoff` can use.

    Above `most` points, neighbours merge into their least latency and least term, which keeps
    the bound valid.
    """
    bounds = lane_bounds(problem, lane)
    p, size = allowed.shape[0], allowed.shape[-1]
    before = so_far(bounds.latency, allowed)
    latency = np.full((p + 1, size, most), INFINITY)
    term = np.full((p + 1, size, most), INFINITY)
    latency[p, size - 1, 0], term[p, size - 1, 0] = 0, 0
    for k in range(p - 1, -1, -1):
        for a in np.flatnonzero(allowed[k].any(axis=1) & (before[k] < INFINITY)):
            ends = np.flatnonzero(allowed[k, a])
            points = latency[k + 1, ends] + bounds.latency[k, a, ends, None]
            terms = np.maximum(term[k + 1, ends], bounds.term[k, a, ends, None])
            room = int(cutoff - bounds.sends - before[k, a])
            found = _merge(*_pareto(points.ravel(), terms.ravel(), room), most)
            latency[k, a, : len(found[0])], term[k, a, : len(found[1])] = found
    return Frontier(latency, term)


def _merge(latency: Array, term: Array, most: int) -> tuple[Array, Array]:
    if len(latency) <= most:
        return latency, term
    groups = np.linspace(0, len(latency), most, endpoint=False).astype(np.int64)
    return np.minimum.reduceat(latency, groups), np.minimum.reduceat(term, groups)
