"""Tiny families of clusters, and what searches over them find."""

from functools import cache
from itertools import permutations

from formulations.costs.tables import build_tables
from formulations.instance.instance import Counts, Family
from formulations.space import configs_of
from solver.clusters.front import Figures, Measure, TimeAndMoney
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import FrontDocument, PointDocument
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


def searched(family: Family, measure: Measure | None = None, gap: float = 0.0) -> FrontDocument:
    """The outcome of a search over a family, its front by default."""
    search = FamilySearch(family, measure or TimeAndMoney(family), SolveOptions(gap=gap))
    return outcome(search, search.run())


@cache
def found(seed: int) -> FrontDocument:
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
    better = {
        a
        for a, b in permutations(known, 2)
        if all(ours >= its for ours, its in zip(a, b, strict=True))
    }
    return known - better


def step_ns(point: PointDocument) -> int:
    return round(1e9 * (point.plan.step_time_s or 0))


def points_of(measure: Measure, front: FrontDocument) -> set[Figures]:
    return {
        measure.figures(point.nodes, step_ns(point), terms)
        for point in front.points
        for terms in measure.terms(point.nodes)
        if terms.on_spot in [rented.on_spot for rented in point.terms]
    }
