"""What clusters are compared by: some figures, of which less is better.

Of one cluster only its least step time matters, as no figure falls when it grows: a point of a
cluster is dominated from the step time on at which none of its figures is below another point's.
The nodes of a cluster may be rented on several terms, which do not depend on the step time; it is
dominated from when on it is on all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import Protocol

from formulations.costs.renting import Terms, chooses_terms, worthwhile_terms
from formulations.instance.family import Counts, Family
from formulations.units import NANOSECONDS_PER_SECOND, SECONDS_PER_HOUR
from solver.front_document import Aim
from solver.result import NOISE

Figures = tuple[float, ...]


class Measure(Protocol):
    """Figures of plans on clusters of a family, and when they reach others."""

    @property
    def aim(self) -> Aim:
        """What a search by it is for."""

    def terms(self, counts: Counts) -> Sequence[Terms]:
        """On which these nodes may be rented, one at least."""

    def figures(self, counts: Counts, step_time_ns: float, terms: Terms) -> Figures:
        """Of a plan with this step time on these nodes."""

    def reaching(self, counts: Counts, terms: Terms, figures: Figures) -> float:
        """Least step time in ns with which a plan has no smaller figures; infinite if none has."""

    @property
    def limited(self) -> bool:
        """Whether there are limits that depend on the terms."""

    def longest_ns(self, terms: Terms) -> float:
        """Longest step time in whole ns within such limits; infinite without any."""


@dataclass(frozen=True)
class TimeAndMoney:
    """Step time in ns, and what a step costs in ns USD/h; either may be left out of account.

    Both of steps that are kept, where nodes may be taken back.
    """

    family: Family
    time: bool = True
    money: bool = True

    @property
    def aim(self) -> Aim:
        """The front, or what is left of it."""
        if self.time and self.money:
            return "front"
        return "time" if self.time else "money"

    def terms(self, counts: Counts) -> Sequence[Terms]:
        """Those that no other beat in both."""
        return worthwhile_terms(self.family.instance, counts)

    def figures(self, counts: Counts, step_time_ns: float, terms: Terms) -> Figures:
        """Step time, and step time times rent."""
        time_ns = step_time_ns * terms.slowdown
        return time_ns * self.time, time_ns * terms.usd_per_hour * self.money

    def reaching(self, counts: Counts, terms: Terms, figures: Figures) -> float:
        """The longer of that of equal time and that of equal cost."""
        rent = terms.usd_per_hour * self.money
        time_ns, cost = figures
        if not rent:
            return time_ns / terms.slowdown if cost <= 0 else inf
        return max(time_ns, cost / rent) / terms.slowdown

    @property
    def limited(self) -> bool:
        """Limits are of steps that are kept where nodes may be taken back; else of plans.

        But nodes that idle are paid for, too.
        """
        instance = self.family.instance
        limits = instance.limits
        if chooses_terms(instance):
            return (limits.max_step_time_s, limits.max_cost_usd_per_step) != (None, None)
        idle = instance.search.idle_nodes and any(self.family.fewest)
        return idle and limits.max_cost_usd_per_step is not None

    def longest_ns(self, terms: Terms) -> float:
        """That of a step that is kept within both limits."""
        if not self.limited:
            return inf
        limits, rent = self.family.instance.limits, terms.usd_per_hour
        kept_s = [] if limits.max_step_time_s is None else [limits.max_step_time_s]
        if limits.max_cost_usd_per_step is not None and rent:
            kept_s.append(limits.max_cost_usd_per_step / rent * SECONDS_PER_HOUR)
        kept_ns = min(kept_s, default=inf) * NANOSECONDS_PER_SECOND
        return floor(kept_ns / terms.slowdown * (1 + NOISE)) if kept_ns < inf else inf


@dataclass(frozen=True)
class TimeAndNodes:
    """Step time in ns, number of nodes, and of every group whether it has any, and whether all.

    So points say what is best with so many nodes, without a group, and with one of its nodes less.
    """

    family: Family

    @property
    def aim(self) -> Aim:
        """Which nodes help."""
        return "subsets"

    def terms(self, counts: Counts) -> Sequence[Terms]:
        """The fastest: money is of no account."""
        return worthwhile_terms(self.family.instance, counts)[:1]

    def figures(self, counts: Counts, step_time_ns: float, terms: Terms) -> Figures:
        """Step time and what it takes."""
        pairs = zip(counts, self.family.most, strict=True)
        flags = [float(flag) for count, most in pairs for flag in (count > 0, count == most)]
        return step_time_ns, float(sum(counts)), *flags

    def reaching(self, counts: Counts, terms: Terms, figures: Figures) -> float:
        """Its step time, if that point takes no more."""
        own = self.figures(counts, 0.0, terms)[1:]
        enough = all(mine >= its for mine, its in zip(own, figures[1:], strict=True))
        return figures[0] if enough else inf

    @property
    def limited(self) -> bool:
        """Never: limits are of plans."""
        return False

    def longest_ns(self, terms: Terms) -> float:
        """Of any length."""
        return inf
