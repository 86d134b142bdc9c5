"""Tiny families of clusters, and what searches over them find."""

from functools import cache

from formulations.costs.tables import build_tables
from formulations.instance.family import Counts, Family
from formulations.space import configs_of
from solver.clusters.front import Figures, Measure, TimeAndMoney
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import FamilyResult
from solver.options import SolveOptions
from solver.search.driver import solve
from tests import brute_force
from tests.small_instances import random_instance

#: Families of two groups with three points or more on their fronts.
SEEDS = (9, 23, 40, 89, 111)


def small_family(seed: int, fewest: Counts | None = None) -> Family:
    """All clusters within those of a random instance."""
    instance = random_instance(seed)
    nodes = zip(instance.cluster.groups, (2, 2), strict=True)
    groups = tuple(group.but(nodes=count) for group, count in nodes)
    cluster = instance.cluster.but(groups=groups)
    instance = instance.but(cluster=cluster)
    none = (0,) * len(instance.cluster.groups)
    return Family(instance=instance, fewest=none if fewest is None else fewest)


def searched(family: Family, measure: Measure | None = None, gap: float = 0.0) -> FamilyResult:
    """The outcome of a search over a family, its front by default."""
    search = FamilySearch(family, measure or TimeAndMoney(family), SolveOptions(gap=gap))
    return outcome(search, search.run())


@cache
def found(seed: int) -> FamilyResult:
    """The front of a small family."""
    return searched(small_family(seed))


@cache
def solved(seed: int) -> dict[Counts, int | None]:
    """Least step time of every cluster of it by a search of its own, on all its nodes."""
    family = small_family(seed)
    results = {counts: solve(family.member(counts)) for counts in family.members()}
    return {counts: result.step_time_ns for counts, result in results.items()}


def times_by_force(family: Family) -> dict[Counts, int | None]:
    """The same by every plan there is."""
    times: dict[Counts, int | None] = {}
    for counts in family.members():
        known = [
            brute_force.optimum_ns(build_tables(family.instance, config))
            for config in configs_of(family.instance, counts)
        ]
        times[counts] = min((ns for ns in known if ns is not None), default=None)
    return times


def front_of(measure: Measure, times: dict[Counts, int | None]) -> set[Figures]:
    """Figures that no others are at least as good as."""
    known = {
        measure.figures(counts, ns, terms)
        for counts, ns in times.items()
        if ns is not None
        for terms in measure.terms(counts)
    }
    return {
        one
        for one in known
        if not any(
            other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in known
        )
    }


def points_of(measure: Measure, result: FamilyResult) -> set[Figures]:
    """Figures of the points of an outcome."""
    return {
        measure.figures(point.nodes, point.result.step_time_ns, terms)
        for point in result.points
        if point.result.step_time_ns is not None
        for terms in point.terms
    }
