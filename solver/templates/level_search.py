"""All templates that may be faster than a cutoff, stage by stage, pruned by `completions`.

Prefixes of all numbers of stages are extended together, depth first in chunks, best bound first.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from solver.enumeration.enumerate import below
from solver.layered.problem import Array, Mask, runs
from solver.templates.completions import Completions
from solver.templates.levels import Level

#: Prefixes extended at once.
CHUNK = 4096


@dataclass(frozen=True)
class Prefixes:
    """N beginnings of templates.

    node: of the next stage. latency, added, steady, slow: as in `stage_terms`, up to the last
    stage. bound: of all templates that begin so. path: [N, P] by stages that follow, which stage
    of the level; -1 before the first.
    """

    node: Array
    latency: Array
    added: Array
    steady: Array
    slow: Array
    bound: Array
    path: Array

    def take(self, keep: Array | Mask | slice) -> "Prefixes":
        """The prefixes with these indices."""
        return Prefixes(*(one[keep] for one in self.arrays))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All fields in order."""
        return (
            self.node,
            self.latency,
            self.added,
            self.steady,
            self.slow,
            self.bound,
            self.path,
        )


def joined(parts: Iterable[Prefixes]) -> Prefixes:
    """All prefixes of some sets."""
    return Prefixes(*map(np.concatenate, zip(*(one.arrays for one in parts), strict=True)))


#: Step times of complete paths [N, P], and the one at which a path is better than the best so far.
Judge = Callable[[Array], Array]


class LevelSearch:
    """Search below `cutoff`; `judge`: step times [N] of complete paths [N, P]."""

    def __init__(
        self,
        completions: Completions,
        starts: Mapping[int, Array],
        judge: Judge,
        best: int,
        gap: float,
    ) -> None:
        self.completions, self.starts, self.judge = completions, starts, judge
        self.levels, self.terms = completions.levels, completions.terms
        self.best, self.gap = best, gap
        self.found: Array | None = None  #: path [P] of the best

    @property
    def cutoff(self) -> int:
        """Templates of at least this time are not looked for."""
        return below(self.best, self.gap)

    def _roots(self, num_stages: int) -> Prefixes:
        """No stages yet, of templates of so many."""
        completions, nodes = self.completions, self.starts[num_stages]
        none = np.zeros(len(nodes), dtype=np.int64)
        bound = completions.roots(num_stages, nodes).min(axis=1)
        path = np.full((len(nodes), len(self.levels)), -1)
        return Prefixes(nodes, none, none, none, none, bound, path)

    def _extended(self, level: Level, prefixes: Prefixes) -> Prefixes:
        """All prefixes with a stage of the level more that may be below the cutoff, best first."""
        first, count = level.range_of
        parent, edge = runs(first[prefixes.node], count[prefixes.node])
        latency = prefixes.latency[parent] + level.latency[edge]
        times = level.work[edge], level.longer[edge], level.again[edge]
        steady, slow, added = self.terms.extended(
            level.after, times, prefixes.steady[parent], prefixes.slow[parent]
        )
        added = np.maximum(added, prefixes.added[parent])
        rest = self.completions.rest(level, edge, slow, added)
        bound = np.maximum(latency + rest, prefixes.bound[parent])
        order = np.flatnonzero(bound < self.cutoff)
        order = order[np.argsort(bound[order], kind="stable")]
        path = prefixes.path[parent[order]]
        path[:, level.after] = edge[order]
        return Prefixes(
            node=level.target[edge[order]],
            latency=latency[order],
            added=added[order],
            steady=steady[order],
            slow=slow[order],
            bound=bound[order],
            path=path,
        )

    def _finish(self, prefixes: Prefixes) -> None:
        """Judges complete templates."""
        while len(prefixes.node):
            part = prefixes.take(slice(0, CHUNK // 16))
            times = self.judge(part.path)
            index = int(times.argmin())
            if times[index] < self.best:
                self.best, self.found = int(times[index]), part.path[index]
            prefixes = prefixes.take(slice(CHUNK // 16, None))
            prefixes = prefixes.take(prefixes.bound < self.cutoff)

    def look(self, width: int) -> None:
        """Judges the templates that the best `width` prefixes of every level lead to."""
        prefixes = None
        for level in reversed(self.levels):
            parts = [] if prefixes is None else [prefixes]
            if level.after + 1 in self.starts:
                parts.append(self._roots(level.after + 1))
            if parts:
                found = self._extended(level, joined(parts))
                prefixes = found.take(self._unlike(found)[:width])
        if prefixes is not None:
            self._finish(prefixes)

    def _unlike(self, prefixes: Prefixes) -> Array:
        """The best prefix, by index, of every node and class of slowest operations."""
        classes = self.completions.classes
        kind = prefixes.node * len(classes.slow) + classes.slow_class(prefixes.slow)
        return np.sort(np.unique(kind, return_index=True)[1])

    def run(self, stop: Callable[[], bool]) -> int:
        """Lower bound of every template not looked at; at least the cutoff when complete."""
        roots = [(p, self._roots(p)) for p in self.starts]
        stack = sorted(roots, key=lambda one: -int(one[1].bound.min(initial=0)))
        while stack:
            left, prefixes = stack.pop()
            if not (keep := prefixes.bound < self.cutoff).all():
                prefixes = prefixes.take(keep)
            if not len(prefixes.node):
                continue
            if stop():
                stack.append((left, prefixes))
                return min(int(one.bound.min()) for _, one in stack if len(one.node))
            if not left:
                self._finish(prefixes)
                continue
            found = self._extended(self.levels[left - 1], prefixes)
            stack += [
                (left - 1, found.take(slice(i, i + CHUNK)))
                for i in reversed(range(0, len(found.node), CHUNK))
            ]
        return self.cutoff
