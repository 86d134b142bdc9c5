"""All splits that may be faster than a cutoff, stage by stage, pruned by completion bounds.

A prefix is dropped if some critical-path cut plus its cheapest completion, or for some lane latency
plus the largest term of a stage (see `latency_bottleneck`), reaches the cutoff. Chunks of prefixes
are extended depth first, so that memory stays small and every complete split lowers the cutoff for
the rest. Splits that only the simulation refutes give new cuts: their critical paths refute those
like them.
"""

from dataclasses import dataclass, replace

import numpy as np

from solver.bounds.latency_bottleneck import latencies, least_terms, path_of, terms
from solver.graph.cuts import Cuts, evaluate, join_cuts
from solver.graph.edges import ArrayRecord, Layers, to_go
from solver.graph.problem import Array, Mask, SplitProblem, runs
from solver.interrupt import Stop

#: Prefixes extended at once.
CHUNK = 4096
#: Cuts kept, and entries of their tables; cuts learned at a time.
MAX_CUTS = 192
MOST_ENTRIES = 1 << 25
LEARNED = 8
#: Refuted splits whose critical paths are looked at, at a time.
SAMPLE = 64


@dataclass(frozen=True)
class Prefixes(ArrayRecord):
    """N placements of the first k stages; R lanes, ns.

    edges: [k, N]. node: [N]. latency, term: [R, N] of these stages, and the largest of what one of
    them adds to the latency of a split. bound: [N] no split that begins like this is faster. cuts:
    [C, N] values of the cuts of a round: they change when some are learned.
    """

    edges: Array
    node: Array
    latency: Array
    term: Array
    bound: Array
    cuts: Array
    round: int


def below(time_ns: int, gap: float) -> int:
    """Step times of at least this are within the relative `gap` of `time_ns`."""
    return time_ns if not gap else int(np.ceil(time_ns * (1 - gap)))


class Enumerator:
    """Complete search below `cutoff` in `layers`."""

    def __init__(
        self, problem: SplitProblem, layers: Layers, cutoff: int, cuts: Cuts, gap: float
    ) -> None:
        self.problem, self.layers = problem, layers
        self.cutoff, self.gap = cutoff, gap
        #: Per stage [R, M] latency and terms of its edges; [R, nodes] latency from a node on.
        self.latency = latencies(layers)
        self.onward = to_go(layers, self.latency)
        self.terms = terms(problem, layers, self.onward)
        self.best: tuple[Array, Array] | None = None
        self.best_time: int | None = None
        self.most_cuts = max(1, min(MAX_CUTS, MOST_ENTRIES // sum(map(len, layers))))
        self.round = 0
        self._use(self._strongest(cuts))

    def _use(self, cuts: Cuts) -> None:
        """Prefixes are refuted by these C cuts."""
        self.cuts = cuts
        #: Per stage [C, M] what an edge adds to a cut; [C, nodes] least sums to the end.
        self.values = [cuts.values(k, edges) for k, edges in enumerate(self.layers)]
        self.completions = to_go(self.layers, self.values)
        #: [C] prefixes that each has refuted.
        self.refuted = np.zeros(len(cuts), dtype=np.int64)

    def _learn(self, arcs: Array, splits: Array, edges: Array) -> None:
        """Adds critical paths of some complete splits that refute most of them; edges: [p, N].

        Of too many cuts, those that refuted least go.
        """
        sample = np.linspace(0, len(splits) - 1, SAMPLE).astype(np.int64)
        paths = evaluate(self.problem, arcs[sample], splits[sample], harvest=True).cuts
        assert paths is not None  # asked for
        values = [paths.values(k, layer)[:, edges[k]] for k, layer in enumerate(self.layers)]
        refutes, chosen = np.sum(values, axis=0) >= self.cutoff, list[int]()
        while len(chosen) < min(LEARNED, self.most_cuts) and refutes.any():
            chosen.append(int(refutes.sum(axis=1).argmax()))
            refutes = refutes & ~refutes[chosen[-1]]
        if chosen:
            strongest = np.argsort(-self.refuted, kind="stable")[: self.most_cuts - len(chosen)]
            self.round += 1
            self._use(join_cuts([self.cuts.take(strongest), paths.take(np.array(chosen))]))

    def _refreshed(self, prefixes: Prefixes) -> Prefixes:
        """With the values of the present cuts."""
        if prefixes.round == self.round:
            return prefixes
        cuts = np.zeros((len(self.cuts), len(prefixes.node)), dtype=np.int64)
        for values, edge in zip(self.values, prefixes.edges, strict=False):
            cuts += values[:, edge]
        return replace(prefixes, cuts=cuts, round=self.round)

    def _strongest(self, cuts: Cuts) -> Cuts:
        """The cuts with the highest bounds over all splits."""
        sample = cuts.take(np.arange(0, len(cuts), max(1, len(cuts) // (8 * self.most_cuts))))
        roots = []
        for first in range(0, len(sample), 64):
            part = sample.take(np.arange(first, min(first + 64, len(sample))))
            values = [part.values(k, edges) for k, edges in enumerate(self.layers)]
            roots.append(to_go(self.layers, values)[0][:, 0])
        return sample.take(np.argsort(-np.concatenate(roots), kind="stable")[: self.most_cuts])

    def _extend(self, k: int, prefixes: Prefixes) -> Prefixes:
        """All prefixes with one stage more that may still be below the cutoff, best bound first."""
        edges = self.layers[k]
        first, count = edges.range_of
        parent, edge = runs(first[prefixes.node], count[prefixes.node])
        node = edges.target[edge]
        # Latency plus the largest term so far, [R, N], of every lane.
        latency = prefixes.latency[:, parent] + self.latency[k][:, edge]
        term = np.maximum(prefixes.term[:, parent], self.terms[k][:, edge])
        by_lane = latency + self.onward[k + 1][:, node] + term
        bound = np.maximum(prefixes.bound[parent], by_lane.max(axis=0))
        keep = np.flatnonzero((bound < self.cutoff) & self._fit(k, prefixes, parent, edge))
        parent, edge, node = parent[keep], edge[keep], node[keep]
        # Every cut plus the least that it still costs, [C, N].
        cuts = prefixes.cuts[:, parent] + self.values[k][:, edge]
        completed = cuts + self.completions[k + 1][:, node]
        self.refuted += (completed >= self.cutoff).sum(axis=1)
        bound = np.maximum(bound[keep], completed.max(axis=0))
        order = np.argsort(bound, kind="stable")
        order = order[: np.searchsorted(bound[order], self.cutoff)]
        path = np.vstack([prefixes.edges[:, parent], edge])
        latency, term = latency[:, keep], term[:, keep]
        return Prefixes(path, node, latency, term, bound, cuts, self.round).take(order)

    def _fit(self, k: int, prefixes: Prefixes, parent: Array, edge: Array) -> Mask | bool:
        """[N] whether the device of stage k has room for its chunks so far."""
        memory, p = self.problem.memory, self.problem.num_devices
        if memory is None or k < p:
            return True
        chunk_edges = [*(prefixes.edges[s, parent] for s in range(k % p, k, p)), edge]
        chunks = list(zip(self.layers[k % p :: p], chunk_edges, strict=False))
        first = np.array([edges.start[at] for edges, at in chunks])
        last = np.array([edges.end[at] for edges, at in chunks])
        return memory.fits(k % p, first, last)

    def _finish(self, prefixes: Prefixes, stop: Stop) -> int:
        """Simulates complete splits; the number of those that it came to before `stop`."""
        if not len(prefixes.node):
            return 0
        arcs, splits = path_of(self.layers, prefixes.edges.T)
        times = evaluate(self.problem, arcs, splits, stop=stop).step_time
        index = int(times.argmin())
        if times[index] < self.cutoff:
            self.best, self.best_time = (arcs[index], splits[index]), int(times[index])
            self.cutoff = below(self.best_time, self.gap)
        if len(times) > SAMPLE:
            self._learn(arcs, splits, prefixes.edges)
        return len(times)

    def run(self, stop: Stop) -> int:
        """Lower bound of every split that was not looked at; at least the cutoff when complete."""
        term = least_terms(self.layers)[:, None]
        by_lane = self.onward[0][:, :1] + term
        root = Prefixes(
            edges=np.zeros((0, 1), dtype=np.int64),
            node=np.zeros(1, dtype=np.int64),
            latency=np.zeros_like(term),
            term=term,
            bound=np.full(1, max(by_lane.max(), self.completions[0][:, 0].max(initial=0))),
            cuts=np.zeros((len(self.completions[0]), 1), dtype=np.int64),
            round=self.round,
        )
        stack = [(0, root)]
        while stack:
            if stop():
                return min(int(prefixes.bound.min()) for _, prefixes in stack)
            k, prefixes = stack.pop()
            prefixes = self._refreshed(prefixes.take(prefixes.bound < self.cutoff))
            if k == self.problem.num_stages:
                seen = self._finish(prefixes, stop)
                if seen < len(prefixes.node):
                    stack.append((k, prefixes.take(slice(seen, None))))
                continue
            extended = self._extend(k, prefixes)
            begins = reversed(range(0, len(extended.node), CHUNK))
            stack += [(k + 1, extended.take(slice(i, i + CHUNK))) for i in begins]
        return self.cutoff
