"""What clusters are compared by, the best of them that no other dominates, and from when on.

Of one cluster only its least step time matters, as no figure falls when it grows: a point of a
cluster is dominated from the step time on at which none of its figures is below another point's.
The nodes of a cluster may be rented on several terms, which do not depend on the step time; it is
dominated from when on it is on all of them. `Wanted`: what a user asks for, within limits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, floor, inf

from formulations.costs.renting import Terms, chooses_terms, worthwhile_terms
from formulations.errors import PlannerError
from formulations.instance.instance import Counts, Family
from formulations.units import NANOSECONDS_PER_SECOND, SECONDS_PER_HOUR
from solver.front_document import Aim
from solver.result import NOISE

#: The largest budget of a training.
MOST_USD = 10**15


@dataclass(frozen=True)
class Wanted:
    """subsets: the nodes of one cluster that help. Else of a training of so many `sequences`.

    With a budget the fastest cluster within it, with a deadline the cheapest; with both, or
    neither, the front. Raises PlannerError for what does not go together.
    """

    subsets: bool = False
    budget_usd: float | None = None
    deadline_s: float | None = None
    sequences: int | None = None

    def __post_init__(self) -> None:
        limits = self.budget_usd, self.deadline_s, self.sequences
        if self.subsets and limits != (None, None, None):
            raise PlannerError("--subsets is of time, so no --budget, --deadline or --sequences")

    def family(self, family: Family, name: str) -> tuple[Family, Aim]:
        """The clusters with these limits, and what they are compared by; name: of their file."""
        if self.subsets:
            return family.but(fewest=(0,) * len(family.fewest)), "subsets"
        # Limits of a step, from those of the training
        instance = family.instance
        steps, limits = instance.objective.steps, dict[str, float]()
        if self.sequences is not None:
            steps = ceil(self.sequences / instance.workload.global_batch)
        if steps is None and (self.budget_usd, self.deadline_s) != (None, None):
            raise PlannerError("--budget and --deadline are of a training: name its --sequences")
        if self.budget_usd is not None and steps is not None:
            if self.budget_usd > MOST_USD:
                raise PlannerError(
                    f"--budget {self.budget_usd:g}: allowed: at most {MOST_USD:,} USD"
                )
            limits["max_cost_usd_per_step"] = self.budget_usd / steps
        if self.deadline_s is not None and steps is not None:
            limits["max_step_time_s"] = self.deadline_s / steps
        limited = family.but(instance={"objective": {"steps": steps}, "limits": limits})
        _check_ranges(limited, name)
        if (self.budget_usd is None) == (self.deadline_s is None):
            return limited, "front"
        return limited, "time" if self.deadline_s is None else "money"


def _check_ranges(family: Family, name: str) -> None:
    """Returns if there are clusters to compare, by prices that they have; PlannerError if not."""
    if family.fewest == family.most:
        allowed = "a range of nodes for some group, such as nodes: {min: 0, max: 8}"
        raise PlannerError(f"{name}: one cluster; allowed: {allowed}; --subsets takes one cluster")
    groups, chooses = family.instance.cluster.groups, chooses_terms(family.instance)
    for group in groups:
        if group.spot is not None and group.spot.only and not chooses:
            problem = f"cluster.groups: {group.name} has a price on spot alone"
            allowed = "a price on demand, or objective: {minimize: cost_per_useful_sequence}"
            raise PlannerError(f"{name} {problem}; allowed: {allowed}")
    on_spot = (group.spot.price_usd_per_hour for group in groups if group.spot and chooses)
    if not any((*(group.price_usd_per_hour for group in groups), *on_spot)):
        allowed = "the price of one node, as clusters are compared by money; --subsets needs none"
        raise PlannerError(f"{name} cluster.groups: no price; allowed: {allowed}")


Figures = tuple[float, ...]


@dataclass(frozen=True)
class Measure:
    """Figures of plans on the clusters of a family, and when they reach others.

    Step time in ns, and what a step costs in ns USD/h: both for a front, one for the least time or
    money. Of steps that are kept, where nodes may be taken back. For subsets step time in ns,
    number of nodes, and of every group whether it has any, and whether all: so points say what is
    best with so many nodes, without a group, and with one of its nodes less.
    """

    family: Family
    aim: Aim = "front"

    def terms(self, counts: Counts) -> Sequence[Terms]:
        """On which these nodes may be rented: those terms that no other beat in both.

        For subsets the fastest, as money is of no account.
        """
        terms = worthwhile_terms(self.family.instance, counts)
        return terms[:1] if self.aim == "subsets" else terms

    def figures(self, counts: Counts, step_time_ns: float, terms: Terms) -> Figures:
        """Step time, and step time times rent, or nodes."""
        if self.aim == "subsets":
            pairs = zip(counts, self.family.most, strict=True)
            flags = [float(f) for count, largest in pairs for f in (count > 0, count == largest)]
            return step_time_ns, float(sum(counts)), *flags
        time_ns = step_time_ns * terms.slowdown
        by_time, by_money = self.aim != "money", self.aim != "time"
        return time_ns * by_time, time_ns * terms.usd_per_hour * by_money

    def reaching(self, counts: Counts, terms: Terms, figures: Figures) -> float:
        """Least step time in ns with which a plan has no smaller figures; infinite if none has.

        The longer of that of equal time and that of equal cost.
        """
        if self.aim == "subsets":  # its step time, if that point takes no more
            taken = self.figures(counts, 0.0, terms)[1:]
            enough = all(ours >= its for ours, its in zip(taken, figures[1:], strict=True))
            return figures[0] if enough else inf
        rent = terms.usd_per_hour * (self.aim != "time")
        time_ns, cost = figures
        if not rent:
            return time_ns / terms.slowdown if cost <= 0 else inf
        return max(time_ns, cost / rent) / terms.slowdown

    @property
    def limited(self) -> bool:
        """Whether there are limits that depend on the terms.

        Limits are of steps that are kept where nodes may be taken back; else of plans, as those of
        subsets are. But nodes that idle are paid for, too.
        """
        instance = self.family.instance
        limits = instance.limits
        if self.aim == "subsets":
            return False
        if chooses_terms(instance):
            return (limits.max_step_time_s, limits.max_cost_usd_per_step) != (None, None)
        idle = instance.search.idle_nodes and any(self.family.fewest)
        return idle and limits.max_cost_usd_per_step is not None

    def longest_ns(self, terms: Terms) -> float:
        """Longest step in whole ns that is kept within both limits; infinite without any."""
        if not self.limited:
            return inf
        limits, rent = self.family.instance.limits, terms.usd_per_hour
        kept_s = [] if limits.max_step_time_s is None else [limits.max_step_time_s]
        if limits.max_cost_usd_per_step is not None and rent:
            kept_s.append(limits.max_cost_usd_per_step / rent * SECONDS_PER_HOUR)
        kept_ns = min(kept_s, default=inf) * NANOSECONDS_PER_SECOND
        return floor(kept_ns / terms.slowdown * (1 + NOISE)) if kept_ns < inf else inf


@dataclass(frozen=True)
class Point:
    """The best plan known of a cluster, its nodes rented on these terms."""

    counts: Counts
    terms: Terms
    step_time_ns: int
    figures: Figures

    def dominates(self, point: "Point") -> bool:
        """Whether no figure is larger, and the point is not the same or an earlier equal one."""
        if self.figures == point.figures:
            return (self.counts, self.terms) < (point.counts, point.terms)
        return all(ours <= its for ours, its in zip(self.figures, point.figures, strict=True))


class Front:
    """points: of every cluster that has a plan its best, on all terms, also dominated ones.

    longest: of every cluster the longest step time in ns within limits, by terms. cutoffs: the step
    time from which on its plans are dominated, beyond limits, or no better than its own, on all.
    """

    def __init__(self, measure: Measure, clusters: Iterable[Counts]) -> None:
        self.measure = measure
        self.points: dict[Counts, list[Point]] = {}
        self._terms = {counts: measure.terms(counts) for counts in clusters}
        terms_of = self._terms.items()
        self.longest = {counts: [*map(measure.longest_ns, terms)] for counts, terms in terms_of}
        longest_of = self.longest.items()
        self._reached = {counts: [ns + 1 for ns in longest] for counts, longest in longest_of}
        self.cutoffs = {counts: max(reached) for counts, reached in self._reached.items()}

    def offer(self, counts: Counts, time_ns: int) -> None:
        """Keeps the step time of a plan that is better than the one known."""
        best = self.points.get(counts)
        if best is None or time_ns < best[0].step_time_ns:
            self.points[counts] = [
                Point(counts, terms, time_ns, self.measure.figures(counts, time_ns, terms))
                for terms, longest in zip(self._terms[counts], self.longest[counts], strict=True)
                if time_ns <= longest
            ]
            self._reached[counts] = [min(ns, time_ns) for ns in self._reached[counts]]
            # cutoffs fall to where plans reach the new points
            for point, (cluster, reached) in product(self.points[counts], self._reached.items()):
                for i, terms in enumerate(self._terms[cluster]):
                    reach_ns = self.measure.reaching(cluster, terms, point.figures)
                    reached[i] = min(reached[i], reach_ns)
                self.cutoffs[cluster] = max(reached)

    @property
    def best(self) -> list[Point]:
        """Points that no other dominates, fastest first."""
        points = [point for of_cluster in self.points.values() for point in of_cluster]
        front = [point for point in points if not any(p.dominates(point) for p in points)]
        return sorted(front, key=lambda p: (p.step_time_ns * p.terms.slowdown, p.figures))

    def dominating(self, counts: Counts, bound_ns: int) -> Point | None:
        """The point of another cluster that dominates plans of this one soonest, if one does.

        On the terms on which they are dominated last, of those that such plans are within.
        """
        others = [point for point in self.best if point.counts != counts]
        last: tuple[float, Point | None] = -inf, None
        for terms, longest in zip(self._terms[counts], self.longest[counts], strict=True):
            if bound_ns > longest:
                continue
            reached = [
                (self.measure.reaching(counts, terms, point.figures), point) for point in others
            ]
            soonest = min(reached, key=lambda pair: pair[0], default=(inf, None))
            last = max(last, soonest, key=lambda pair: pair[0])
        return None if last[0] == inf else last[1]
