"""What follows any stage of any template costs at least; worked out for all node counts at once.

Let a template be of class [low, high] if its slowest stage adds as much to its latency (alone, see
`stage_terms`). Its step is at least latency + low, so with the least latency of suffixes whose
stages add at most `high`, every suffix in a template of the class costs at least that and `low`.
Classes are gone through from the lowest on until no template of a higher one can be better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.template import Template
from solver.layered.problem import INFINITY, Array
from solver.templates.chains import Counts
from solver.templates.graph import TemplateGraph
from solver.templates.places import Places
from solver.templates.stage_terms import StageTerms
from solver.templates.suffixes import NO_LIMIT, Suffixes
from solver.templates.whole import WholeTemplates

#: A class ends where its stages add one part in so many more than where it begins.
PARTS = 24


@dataclass(frozen=True)
class Candidate:
    """A template of least latency: `table` of the suffixes that count, and what stages may add."""

    table: Array
    final: Counts
    num_stages: int
    limit: int


@dataclass(frozen=True)
class Known:
    """What suffixes cost at least, [S, P + 1, n].

    latency: alone. bound: with what the slowest stage of the template adds, if it is better than
    the best known.
    """

    latency: Array
    bound: Array


class SharedBounds:
    """Bounds for every key of `finals`, for templates of several stages."""

    def __init__(
        self, places: Places, finals: Mapping[int, Sequence[Counts]], micro_batches: int
    ) -> None:
        vectors = [vector for own in finals.values() for vector in own]
        corner = tuple(max(axis) for axis in zip(*vectors, strict=True))
        self.terms = StageTerms(places, micro_batches)
        self.finals = finals
        self.suffixes = Suffixes(TemplateGraph(places, [corner]), self.terms)
        self.whole = WholeTemplates(self.suffixes)
        self.free = self.suffixes.latencies(NO_LIMIT, vectors)
        self.slowest = self.suffixes.least_terms(vectors)
        self._latency = {v: self.whole.latencies(self.free, v, NO_LIMIT) for v in vectors}
        self._term = {v: self.whole.terms(self.slowest, v) for v in vectors}
        self._bound = np.full_like(self.free, INFINITY)
        self._least = dict.fromkeys(finals, int(INFINITY))  #: of the classes gone through
        self.low = min((self.least_term(key) for key in finals), default=0)

    def least_term(self, key: int) -> int:
        """The least that the slowest stage of a template adds; INFINITY without templates."""
        return int(min(self._term[v].min() for v in self.finals[key]))

    def least_latency(self, key: int) -> int:
        """The least latency of any template; INFINITY without templates."""
        return int(min(self._latency[v].min() for v in self.finals[key]))

    def _rest(self, key: int) -> int:
        """Bound of templates of classes not gone through."""
        if self.low > self.suffixes.most_term:
            return int(INFINITY)
        bounds = [self._latency[v] + np.maximum(self._term[v], self.low) for v in self.finals[key]]
        return int(min(one.min() for one in bounds))

    def open(self, targets: Mapping[int, int]) -> list[int]:
        """Keys of which higher classes may have templates below these step times."""
        return [key for key, target in targets.items() if self._rest(key) < target]

    def close(self, targets: Mapping[int, int]) -> dict[int, Candidate]:
        """Goes through the next class; for some keys, the template of least bound so far."""
        keys = self.open(targets)
        self.low = max(self.low, min(map(self.least_term, keys)))
        high = self.low + max(1, self.low // PARTS)
        keys = [key for key in keys if self.least_term(key) <= high]
        table = self.suffixes.latencies(high, [v for key in keys for v in self.finals[key]])
        np.minimum(self._bound, table + self.low, out=self._bound)
        found = dict[int, Candidate]()
        for key in keys:
            latency, candidate = self._best(key, table, high)
            if candidate is not None and latency + self.low < self._least[key]:
                self._least[key] = latency + self.low
                found[key] = candidate
        self.low = high
        return found

    def _best(self, key: int, table: Array, limit: int) -> tuple[int, Candidate | None]:
        """Least latency within a limit, and the template that has it."""
        rows = {v: self.whole.latencies(table, v, limit) for v in self.finals[key]}
        final = min(rows, key=lambda v: int(rows[v].min()))
        latency = int(rows[final].min())
        if latency >= INFINITY:
            return latency, None
        return latency, Candidate(table, final, int(rows[final].argmin()), limit)

    def balanced(self, key: int) -> Candidate | None:
        """A template whose slowest stage is as fast as can be, for its number of stages."""
        sums = {v: self._latency[v] + self._term[v] for v in self.finals[key]}
        final = min(sums, key=lambda v: int(sums[v].min()))
        if sums[final].min() >= INFINITY:
            return None
        p = int(sums[final].argmin())
        limit = int(self._term[final][p])
        table = np.where(self.slowest <= limit, self.free, INFINITY)
        return Candidate(table, final, p, limit)

    def template(self, found: Candidate) -> Template:
        """The template of a candidate."""
        steps, ends = self.whole.walk(found.table, found.final, found.num_stages, found.limit)
        return self.suffixes.graph.template(steps, ends)

    def bound(self, key: int) -> int:
        """Lower bound of the templates of a key, if one is better than the best known.

        Of the classes gone through, those without better ones of the key are left out.
        """
        return min(self._least[key], self._rest(key))

    def bounds(self, key: int, target: int) -> Array:
        """[P + 1] lower bounds of the templates of a key below `target`, by number of stages."""
        table = self.known(key, target).bound
        rows = [self.whole.latencies(table, v, NO_LIMIT) for v in self.finals[key]]
        found: Array = np.min(rows, axis=0)
        return found

    def known(self, key: int, target: int) -> Known:
        """Bounds for the templates of a key below `target`."""
        bound = self._bound
        if self._rest(key) < target:
            bound = np.minimum(bound, self.free + np.maximum(self.slowest, self.low))
        return Known(self.free, bound)


def least_latencies(places: Places, final: Counts, micro_batches: int) -> Array:
    """Least latency of templates on `final` by number of stages; INFINITY where none fits."""
    suffixes = Suffixes(TemplateGraph(places, [final]), StageTerms(places, micro_batches))
    return WholeTemplates(suffixes).latencies(
        suffixes.latencies(NO_LIMIT, [final]), final, NO_LIMIT
    )
