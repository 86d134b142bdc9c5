"""The best of several clusters that no other dominates, and from when on they dominate others."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from formulations.costs.renting import Terms
from formulations.instance.family import Counts
from solver.clusters.measure import Figures, Measure


@dataclass(frozen=True)
class Point:
    """The best plan known of a cluster, its nodes rented on these terms."""

    counts: Counts
    terms: Terms
    step_time_ns: int
    figures: Figures

    def dominates(self, other: "Point") -> bool:
        """Whether no figure is larger, and the other is not the same or an earlier equal one."""
        if self.figures == other.figures:
            return (self.counts, self.terms) < (other.counts, other.terms)
        return all(own <= its for own, its in zip(self.figures, other.figures, strict=True))


class Front:
    """points: of every cluster that has a plan its best, on all terms, also dominated ones.

    longest: of every cluster the longest step time in ns within limits, by terms. cutoffs: the step
    time from which on its plans are dominated, beyond limits, or no better than its own, on all.
    """

    def __init__(self, measure: Measure, clusters: Iterable[Counts]) -> None:
        self.measure = measure
        self.points: dict[Counts, list[Point]] = {}
        self._terms = {counts: measure.terms(counts) for counts in clusters}
        self.longest = {
            counts: [measure.longest_ns(own) for own in terms]
            for counts, terms in self._terms.items()
        }
        self._reached = {
            counts: [ns + 1 for ns in longest] for counts, longest in self.longest.items()
        }
        self.cutoffs = {counts: max(reached) for counts, reached in self._reached.items()}

    def among(self, clusters: Iterable[Counts]) -> "Front":
        """One of these clusters alone that knows what this one does: to play with."""
        other = Front(self.measure, clusters)
        for counts in other.cutoffs:
            other.cutoffs[counts] = self.cutoffs[counts]
            other._reached[counts] = [*self._reached[counts]]
        return other

    def offer(self, counts: Counts, time_ns: int) -> None:
        """Keeps the step time of a plan that is better than the one known."""
        known = self.points.get(counts)
        if known is None or time_ns < known[0].step_time_ns:
            self.points[counts] = [
                Point(counts, terms, time_ns, self.measure.figures(counts, time_ns, terms))
                for terms, longest in zip(self._terms[counts], self.longest[counts], strict=True)
                if time_ns <= longest
            ]
            self._reached[counts] = [min(ns, time_ns) for ns in self._reached[counts]]
            for point in self.points[counts]:
                self._dominate(point)

    def _dominate(self, point: Point) -> None:
        """Lowers the cutoffs to where plans reach the point."""
        for counts, reached in self._reached.items():
            for i, terms in enumerate(self._terms[counts]):
                reached[i] = min(reached[i], self.measure.reaching(counts, terms, point.figures))
            self.cutoffs[counts] = max(reached)

    @property
    def best(self) -> list[Point]:
        """Points that no other dominates, fastest first."""
        known = [point for own in self.points.values() for point in own]
        left = [one for one in known if not any(other.dominates(one) for other in known)]
        return sorted(left, key=lambda one: (one.step_time_ns * one.terms.slowdown, one.figures))

    def dominating(self, counts: Counts, bound_ns: int) -> Point | None:
        """The point of another cluster that dominates plans of this one soonest, if one does.

        On the terms on which they are dominated last, of those that such plans are within.
        """
        others = [one for one in self.best if one.counts != counts]
        last: tuple[float, Point | None] = -inf, None
        for terms, longest in zip(self._terms[counts], self.longest[counts], strict=True):
            if bound_ns > longest:
                continue
            reached = [(self.measure.reaching(counts, terms, one.figures), one) for one in others]
            soonest = min(reached, key=lambda pair: pair[0], default=(inf, None))
            last = max(last, soonest, key=lambda pair: pair[0])
        return None if last[0] == inf else last[1]
