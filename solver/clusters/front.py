"""The best of several clusters that no other dominates, and from when on they dominate others."""

from dataclasses import dataclass, field
from math import inf

from formulations.instance.family import Counts
from solver.clusters.measure import Figures, Measure


@dataclass(frozen=True)
class Point:
    """The best plan known of a cluster."""

    counts: Counts
    step_time_ns: int
    figures: Figures

    def dominates(self, other: "Point") -> bool:
        """Whether no figure is larger, and the other is not the same or an earlier equal one."""
        if self.figures == other.figures:
            return self.counts < other.counts
        return all(own <= its for own, its in zip(self.figures, other.figures, strict=True))


@dataclass
class Front:
    """points: the best plan of every cluster that has one, also dominated ones.

    cutoffs: of every cluster the step time in ns from which on its plans are dominated, or no
    better than its own.
    """

    measure: Measure
    cutoffs: dict[Counts, float]
    points: dict[Counts, Point] = field(default_factory=dict)

    def offer(self, counts: Counts, time_ns: int) -> None:
        """Keeps the step time of a plan that is better than the one known."""
        known = self.points.get(counts)
        if known is None or time_ns < known.step_time_ns:
            figures = self.measure.figures(counts, time_ns)
            self.points[counts] = Point(counts, time_ns, figures)
            for other, cutoff_ns in self.cutoffs.items():
                reaching_ns = self.measure.reaching(other, figures)
                if reaching_ns < cutoff_ns:
                    self.cutoffs[other] = reaching_ns

    @property
    def best(self) -> list[Point]:
        """Points that no other dominates, fastest first."""
        known = self.points.values()
        left = [one for one in known if not any(other.dominates(one) for other in known)]
        return sorted(left, key=lambda one: (one.step_time_ns, one.figures))

    def dominating(self, counts: Counts) -> Point | None:
        """The point of another cluster that dominates plans of this one soonest, if one does."""
        others = [one for one in self.best if one.counts != counts]
        reached = [(self.measure.reaching(counts, one.figures), one) for one in others]
        time_ns, point = min(reached, key=lambda pair: pair[0], default=(inf, None))
        return None if time_ns == inf else point
