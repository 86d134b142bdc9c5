"""All splits that may be faster than a cutoff, stage by stage, pruned by completion bounds.

A prefix is dropped if some critical-path cut plus its cheapest completion, or for some lane the
best point of the completion frontier, reaches the cutoff. Chunks of prefixes are extended depth
first, so that memory stays small and every complete split lowers the cutoff for the rest. Splits
that only the simulation refutes give new cuts: their critical paths refute those like them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solver.bounds.frontier import Frontier, Head, no_stages
from solver.bounds.latency_bottleneck import latencies, path_of, terms
from solver.enumeration.cut_tables import CutTables
from solver.layered.cuts import Cuts, evaluate
from solver.layered.edges import Layers
from solver.layered.problem import Array, Mask, SplitProblem, runs

#: Prefixes extended at once.
CHUNK = 4096
#: Refuted splits whose critical paths are looked at, at a time.
SAMPLE = 64


@dataclass(frozen=True)
class Prefixes:
    """N placements of the first k stages."""

    edges: Array  #: [N, k]
    node: Array  #: [N]
    heads: list[Head]  #: per lane
    bound: Array  #: [N] lower bound of all splits that begin like this
    cuts: Array  #: [C, N] values of the cuts of a round
    round: int

    def take(self, keep: Array | Mask | slice) -> "Prefixes":
        """The prefixes with these indices."""
        return Prefixes(
            self.edges[keep],
            self.node[keep],
            [head.take(keep) for head in self.heads],
            self.bound[keep],
            self.cuts[:, keep],
            self.round,
        )


def below(time_ns: int, gap: float) -> int:
    """Step times of at least this are within the relative `gap` of `time_ns`."""
    return time_ns if not gap else int(np.ceil(time_ns * (1 - gap)))


class Enumerator:
    """Complete search below `cutoff` in `layers`.

    combined: per stage [M] a combination of paths, see `solver.bounds.surrogate`; one more cut.
    """

    def __init__(
        self,
        problem: SplitProblem,
        layers: Layers,
        fronts: list[Frontier],
        cutoff: int,
        cuts: Cuts,
        gap: float,
        combined: list[Array] | None = None,
    ) -> None:
        self.problem, self.layers, self.fronts = problem, layers, fronts
        self.cutoff, self.gap = cutoff, gap
        self.costs = [latencies(layers, lane) for lane in range(problem.num_lanes)]
        self.terms = [terms(problem, layers, lane) for lane in range(problem.num_lanes)]
        self.best: tuple[Array, Array] | None = None
        self.best_time: int | None = None
        self.cuts = CutTables(layers, cuts, combined)

    def _refresh(self, prefixes: Prefixes) -> Prefixes:
        """The prefixes with the values of the present cuts."""
        if prefixes.round == self.cuts.round:
            return prefixes
        cuts = np.zeros((len(self.cuts.refuted), len(prefixes.node)), dtype=np.int64)
        for k, edge in enumerate(prefixes.edges.T):
            cuts += self.cuts.values[k][:, edge]
        return replace(prefixes, cuts=cuts, round=self.cuts.round)

    def _extend(self, k: int, prefixes: Prefixes) -> Prefixes:
        """All prefixes with one stage more that may still be below the cutoff, best bound first."""
        edges = self.layers[k]
        first, count = edges.range_of
        parent, edge = runs(first[prefixes.node], count[prefixes.node])
        node = edges.target[edge]
        bound, heads = prefixes.bound[parent], list[Head]()
        for lane, (front, head) in enumerate(zip(self.fronts, prefixes.heads, strict=True)):
            costs = self.costs[lane][k], self.terms[lane][k]
            heads.append(head.take(parent).extended(self.problem, k, lane, edges, edge, *costs))
            np.maximum(bound, front.bound(k + 1, node, heads[-1]), out=bound)
        keep = np.flatnonzero((bound < self.cutoff) & self._fit(k, prefixes, parent, edge))
        parent, edge, node = parent[keep], edge[keep], node[keep]
        cuts = prefixes.cuts[:, parent] + self.cuts.values[k][:, edge]
        whole = cuts + self.cuts.completions[k + 1][:, node]
        self.cuts.refuted += (whole >= self.cutoff).sum(axis=1)
        bound = np.maximum(bound[keep], whole.max(axis=0))
        order = np.argsort(bound, kind="stable")
        order = order[: np.searchsorted(bound[order], self.cutoff)]
        found = np.column_stack([prefixes.edges[parent], edge])
        heads = [head.take(keep) for head in heads]
        return Prefixes(found, node, heads, bound, cuts, prefixes.round).take(order)

    def _fit(self, k: int, prefixes: Prefixes, parent: Array, edge: Array) -> Mask | bool:
        """[N] whether the device of stage k has room for its chunks so far."""
        memory, p = self.problem.memory, self.problem.num_devices
        if memory is None or k < p:
            return True
        own = [*(prefixes.edges[parent, s] for s in range(k % p, k, p)), edge]
        layers = self.layers[k % p :: p]
        first, last = (
            np.array([getattr(one, name)[at] for one, at in zip(layers, own, strict=False)])
            for name in ("start", "end")
        )
        return memory.fits(k % p, first, last)

    def _finish(self, prefixes: Prefixes, stop: Callable[[], bool]) -> int:
        """Simulates complete splits; the number of those that it came to before `stop`."""
        if not len(prefixes.node):
            return 0
        arcs, splits = path_of(self.layers, prefixes.edges)
        times = evaluate(self.problem, arcs, splits, stop=stop).step_time
        index = int(times.argmin())
        if times[index] < self.cutoff:
            self.best, self.best_time = (arcs[index], splits[index]), int(times[index])
            self.cutoff = below(self.best_time, self.gap)
        if len(times) > SAMPLE:
            some = np.linspace(0, len(times) - 1, SAMPLE).astype(np.int64)
            cuts = evaluate(self.problem, arcs[some], splits[some], harvest=True).cuts
            if cuts is not None:
                self.cuts.learn(cuts, prefixes.edges, self.cutoff)
        return len(times)

    def _least(self) -> int:
        """Lower bound of every split: the strongest completion of nothing at all."""
        none = np.zeros(1, dtype=np.int64)
        by_front = [int(front.bound(0, none, no_stages())[0]) for front in self.fronts]
        return max(int(self.cuts.completions[0][:, 0].max(initial=0)), *by_front)

    def run(self, stop: Callable[[], bool]) -> int:
        """Lower bound of every split that was not looked at; at least the cutoff when complete."""
        root = Prefixes(
            edges=np.zeros((1, 0), dtype=np.int64),
            node=np.zeros(1, dtype=np.int64),
            heads=[no_stages() for _ in self.fronts],
            bound=np.full(1, self._least()),
            cuts=np.zeros((len(self.cuts.refuted), 1), dtype=np.int64),
            round=self.cuts.round,
        )
        stack = [(0, root)]
        while stack:
            if stop():
                return min(int(prefixes.bound.min()) for _, prefixes in stack)
            k, prefixes = stack.pop()
            prefixes = self._refresh(prefixes.take(prefixes.bound < self.cutoff))
            if k == self.problem.num_stages:
                seen = self._finish(prefixes, stop)
                if seen < len(prefixes.node):
                    stack.append((k, prefixes.take(slice(seen, None))))
                continue
            found = self._extend(k, prefixes)
            stack += [
                (k + 1, found.take(slice(i, i + CHUNK)))
                for i in reversed(range(0, len(found.node), CHUNK))
            ]
        return self.cutoff
