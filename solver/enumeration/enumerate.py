"""All splits that may be faster than a cutoff, stage by stage, pruned by completion bounds.

A prefix is dropped if some critical-path cut plus its cheapest completion, or for some lane the
best point of the completion frontier, reaches the cutoff. Chunks of prefixes are extended depth
first, so that memory stays small and every complete split lowers the cutoff for the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.enumeration.completion import Frontier, frontier, lane_bounds, to_go
from solver.enumeration.cuts import Cuts, choose, evaluate
from solver.enumeration.problem import Array, Mask, SplitProblem

#: Prefixes extended at once, and cuts kept.
CHUNK = 4096
MAX_CUTS = 192


@dataclass(frozen=True)
class Prefixes:
    """N splits of the first stages: ends [N, k + 1], per lane latency and term, cut values."""

    ends: Array
    latency: Array  #: [lanes, N]
    term: Array  #: [lanes, N]
    cuts: Array  #: [N, C]

    def take(self, keep: Array) -> "Prefixes":
        """The prefixes with these indices."""
        return Prefixes(self.ends[keep], self.latency[:, keep], self.term[:, keep], self.cuts[keep])


class Enumerator:
    """Complete search below `cutoff` among the intervals `allowed`."""

    def __init__(self, problem: SplitProblem, allowed: Mask, cutoff: int, cuts: Cuts) -> None:
        self.problem, self.allowed, self.cutoff = problem, allowed, cutoff
        self.bounds = [lane_bounds(problem, lane) for lane in problem.lanes]
        self.fronts: list[Frontier] = [
            frontier(problem, lane, allowed, cutoff) for lane in problem.lanes
        ]
        self.cuts, self.completions = self._strongest(cuts)
        self.best: Array | None = None

    def _strongest(self, cuts: Cuts) -> tuple[Cuts, Array]:
        """Cuts with the highest bounds over all splits, and their completions [C, p + 1, n]."""
        p, size = self.problem.num_stages, self.problem.num_layers + 1
        parts = []
        for first in range(0, len(cuts), 32):
            part = choose(cuts, np.arange(first, min(first + 32, len(cuts))))
            costs = np.stack([part.costs(self.problem, k) for k in range(p)], axis=1)
            parts.append(to_go(costs, self.allowed))
        completions = np.concatenate(parts).reshape(-1, p + 1, size)
        root = completions[:, 0, 0] + cuts.sends
        keep = np.argsort(-root, kind="stable")[:MAX_CUTS]
        return choose(cuts, keep), completions[keep]

    def _extend(self, k: int, prefixes: Prefixes) -> Prefixes:
        """All prefixes with one stage more that may still be below the cutoff."""
        last = prefixes.ends[:, -1]
        parent, end = np.nonzero(self.allowed[k, last])
        start = last[parent]
        latency = prefixes.latency[:, parent]
        term = prefixes.term[:, parent]
        keep = np.ones(len(parent), dtype=bool)
        for c, (bounds, front) in enumerate(zip(self.bounds, self.fronts, strict=True)):
            latency[c] += bounds.latency[k, start, end]
            np.maximum(term[c], bounds.term[k, start, end], out=term[c])
            keep &= front.bound(k + 1, end, latency[c], term[c]) < self.cutoff
        parent, start, end = parent[keep], start[keep], end[keep]
        values = prefixes.cuts[parent] + self.cuts.increments(self.problem, k, start, end)
        whole = values + self.completions[:, k + 1, end].T
        inside = (whole < self.cutoff).all(axis=1)
        ends = np.column_stack([prefixes.ends[parent], end])
        extended = Prefixes(ends, latency[:, keep], term[:, keep], values)
        order = np.flatnonzero(inside)
        return extended.take(order[np.argsort(whole[order].max(axis=1), kind="stable")])

    def _finish(self, prefixes: Prefixes) -> None:
        if not len(prefixes.ends):
            return
        times = evaluate(self.problem, prefixes.ends).step_time
        index = int(times.argmin())
        if times[index] < self.cutoff:
            self.best, self.cutoff = prefixes.ends[index], int(times[index])

    def run(self, stop: Callable[[], bool]) -> bool:
        """Whether every split below the cutoff was looked at; False when stopped."""
        lanes = len(self.problem.lanes)
        sends = np.array([bounds.sends for bounds in self.bounds])
        stack = [
            (
                0,
                Prefixes(
                    np.zeros((1, 1), dtype=np.int64),
                    sends.reshape(lanes, 1),
                    np.zeros((lanes, 1), dtype=np.int64),
                    self.cuts.sends[None, :].copy(),
                ),
            )
        ]
        while stack:
            if stop():
                return False
            k, prefixes = stack.pop()
            if k == self.problem.num_stages:
                self._finish(prefixes)
                continue
            found = self._extend(k, prefixes)
            chunks = range(0, len(found.ends), CHUNK)
            stack += [
                (k + 1, found.take(np.arange(i, min(i + CHUNK, len(found.ends)))))
                for i in reversed(chunks)
            ]
        return True
