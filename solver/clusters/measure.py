"""What clusters are compared by: two figures, of which less is better.

Of one cluster only its least step time matters, as both figures grow with it: a point of a cluster
is dominated from the step time on at which neither of its figures is below those of another point.
"""

from dataclasses import dataclass
from math import inf
from typing import Protocol

from formulations.instance.family import Counts, Family
from solver.result import rent_usd_per_hour

Figures = tuple[float, float]


class Measure(Protocol):
    """Figures of plans on clusters of a family, and when they reach others."""

    def figures(self, counts: Counts, step_time_ns: float) -> Figures:
        """Of a plan with this step time on these nodes; neither falls when the time grows."""

    def reaching(self, counts: Counts, figures: Figures) -> float:
        """Least step time in ns with which a plan has no smaller figures; infinite if none has."""


@dataclass(frozen=True)
class TimeAndMoney:
    """Step time in ns, and what a step costs in ns USD/h; either may be left out of account."""

    family: Family
    time: bool = True
    money: bool = True

    def figures(self, counts: Counts, step_time_ns: float) -> Figures:
        """Step time, and step time times rent."""
        rent = rent_usd_per_hour(self.family.instance, counts)
        return step_time_ns * self.time, step_time_ns * rent * self.money

    def reaching(self, counts: Counts, figures: Figures) -> float:
        """The longer of that of equal time and that of equal cost."""
        rent = rent_usd_per_hour(self.family.instance, counts) * self.money
        time_ns, cost = figures
        if not rent:
            return time_ns if cost <= 0 else inf
        return max(time_ns, cost / rent)


@dataclass(frozen=True)
class TimeAndNodes:
    """Step time in ns, and number of nodes."""

    def figures(self, counts: Counts, step_time_ns: float) -> Figures:
        """Step time and nodes."""
        return step_time_ns, sum(counts)

    def reaching(self, counts: Counts, figures: Figures) -> float:
        """Its step time, if that point needs no more nodes."""
        time_ns, nodes = figures
        return time_ns if sum(counts) >= nodes else inf
