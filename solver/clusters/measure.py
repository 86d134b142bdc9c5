"""What clusters are compared by: some figures, of which less is better.

Of one cluster only its least step time matters, as no figure falls when it grows: a point of a
cluster is dominated from the step time on at which none of its figures is below another point's.
"""

from dataclasses import dataclass
from math import inf
from typing import Protocol

from formulations.instance.family import Counts, Family
from solver.result import rent_usd_per_hour

Figures = tuple[float, ...]


class Measure(Protocol):
    """Figures of plans on clusters of a family, and when they reach others."""

    def figures(self, counts: Counts, step_time_ns: float) -> Figures:
        """Of a plan with this step time on these nodes."""

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
    """Step time in ns, number of nodes, and of every group whether it has any, and whether all.

    So points say what is best with so many nodes, without a group, and with one of its nodes less.
    """

    family: Family

    def figures(self, counts: Counts, step_time_ns: float) -> Figures:
        """Step time and what it takes."""
        pairs = zip(counts, self.family.most, strict=True)
        flags = [float(flag) for count, most in pairs for flag in (count > 0, count == most)]
        return step_time_ns, float(sum(counts)), *flags

    def reaching(self, counts: Counts, figures: Figures) -> float:
        """Its step time, if that point takes no more."""
        own = self.figures(counts, 0.0)[1:]
        enough = all(mine >= its for mine, its in zip(own, figures[1:], strict=True))
        return figures[0] if enough else inf
