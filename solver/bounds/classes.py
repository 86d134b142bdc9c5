"""Bounds over all paths of one lane, by how much its worst stage adds to the latency.

M of a path is the largest of what the bottleneck and the rounds of any stage add, see `completion`.
The step time is at least latency + M. Paths are told apart by M, in classes (low - 1, high]. To
those of a class only edges count whose term is at most `high`, and whose rounds are with the least
latency of all stages after them that this leaves; the least latency among these, plus `low`, bounds
the class.
"""

from dataclasses import dataclass

import numpy as np

from solver.bounds.completion import added_by_rounds, latencies, least_term, walk
from solver.layered.graph import Layers, to_go
from solver.layered.problem import INFINITY, Array, Mask, SplitProblem

#: Number of classes.
CLASSES = 16


@dataclass(frozen=True)
class ByClass:
    """Bounds of all paths below a cutoff.

    bound_ns: least step time. path: [p] edges of the path with that bound, None if there
    is none. useful: per stage [M] edges that paths may use.
    """

    bound_ns: int
    path: Array | None
    useful: list[Mask]


def _limits(layers: Layers, cutoff: int) -> tuple[Array, Array]:
    """Least and largest M [B, 1] of the classes that matter below the cutoff."""
    least = least_term(layers, 0)
    most = max(cutoff - int(to_go(layers, latencies(layers, 0))[0][0]), least + 1)
    ends = np.linspace(least - 1, most, CLASSES + 1).astype(np.int64)
    return ends[:-1, None] + 1, ends[1:, None]


def by_class(problem: SplitProblem, layers: Layers, cutoff: int) -> ByClass:
    """The bounds of a problem with one lane, and tightened layers."""
    low, high = _limits(layers, cutoff)
    latency = latencies(layers, 0)
    after = [np.zeros((len(low), layers[-1].num_targets), dtype=np.int64)]
    ahead, costs = after[0], []
    for k in reversed(range(len(layers))):
        edges = layers[k]
        onward = ahead[:, edges.target]
        added = np.maximum(edges.term[0], added_by_rounds(problem, edges, k, 0, onward))
        out = added > high
        costs.append(np.where(out, INFINITY, latency[k] + after[-1][:, edges.target]))
        after.append(edges.from_sources(costs[-1]))
        ahead = edges.from_sources(np.where(out, INFINITY, edges.latency[0] + onward))
    costs.reverse()
    before = np.full((len(low), layers[0].num_sources), INFINITY)
    before[:, 0] = 0
    useful = []
    for edges, cost, own in zip(layers, costs, latency, strict=True):
        through = before[:, edges.source]
        below: Mask = through + cost + low < cutoff
        useful.append(np.any(below, axis=0))
        before = edges.into_targets(np.where(edges.term[0] > high, INFINITY, through + own))
    bounds = after[-1][:, :1] + low
    best = int(bounds.argmin())
    path = None
    if bounds[best, 0] < cutoff:
        path = walk(layers, [cost[best] for cost in costs])
    return ByClass(int(min(bounds[best, 0], cutoff)), path, useful)
