"""Tiny families of clusters, and what searches over them find."""

from functools import cache
from itertools import permutations, product
from pathlib import Path
from random import Random

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.instance import Counts, Family
from formulations.instance.load import parse_instance
from formulations.space import configs_of
from solver.clusters.front import Figures, Measure
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import FrontDocument, PointDocument
from solver.options import SolveOptions
from solver.search.driver import solve
from tests import brute_force
from tests.conftest import text_of
from tests.small_instances import random_instance, with_groups

#: Families of two groups with three points or more on their fronts.
SEEDS = (9, 23, 40, 89, 111)


def small_family(seed: int, fewest: Counts | None = None) -> Family:
    """All clusters within those of a random instance."""
    instance = with_groups(random_instance(seed), nodes=2)
    return Family(instance=instance, fewest=fewest or (0,) * len(instance.cluster.groups))


def priced(family: Family, price: float | None) -> Family:
    """The family with this price for each of its nodes."""
    return family.but(instance=with_groups(family.instance, price_usd_per_hour=price))


def searched(family: Family, measure: Measure | None = None, gap: float = 0.0) -> FrontDocument:
    search = FamilySearch(family, measure or Measure(family), SolveOptions(gap=gap))
    return outcome(search, search.run())


@cache
def found(seed: int) -> FrontDocument:
    return searched(small_family(seed))


def times_by_force(family: Family) -> dict[Counts, int | None]:
    """Least step time of every cluster by every plan there is."""
    times: dict[Counts, int | None] = {}
    for counts in family.members():
        optima = [
            brute_force.optimum_ns(build_tables(family.instance, config))
            for config in configs_of(family.instance, counts)
        ]
        times[counts] = min((ns for ns in optima if ns is not None), default=None)
    return times


def front_of(measure: Measure, times: dict[Counts, int | None]) -> set[Figures]:
    """Figures that no others are at least as good as."""
    known = {
        measure.figures(counts, ns, terms)
        for counts, ns in times.items()
        if ns is not None
        for terms in measure.terms(counts)
    }
    pairs = permutations(known, 2)
    return known - {a for a, b in pairs if all(x >= y for x, y in zip(a, b, strict=True))}


def step_ns(point: PointDocument) -> int:
    return round(1e9 * (point.plan.step_time_s or 0))


def points_of(measure: Measure, front: FrontDocument) -> set[Figures]:
    return {
        measure.figures(point.nodes, step_ns(point), terms)
        for point in front.points
        for terms in measure.terms(point.nodes)
        if terms.on_spot in [rented.on_spot for rented in point.terms]
    }


def mixed(
    seed: int, counts: Counts = (2, 2), *, workload: str = "", search: str = "target: any"
) -> Instance:
    """So many nodes of a group with flash attention and of one without; workload: more fields."""
    rng = Random(seed)
    fields: dict[str, object] = {
        "gpus": (rng.choice(("A100-40", "A10")), rng.choice(("V100-16", "T4"))),
        "prices": (rng.choice((2, 5, 8)), rng.choice((1, 2, 3))),
        "links": [rng.choice((10, 100, 400)) for _ in counts],
        "size": rng.choice((1, 2)),
        "tokens": rng.choice((512, 2048)),
        "layers": rng.choice((3, 4, 6)),
        "batch": rng.choice((4, 8, 16)),
    }
    text = text_of("spaces/mixed.yaml").format(
        **fields, counts=counts, workload=workload, search=search
    )
    there = (line for line in text.splitlines() if " nodes: 0," not in line)
    return parse_instance("\n".join(there), "x.yaml", Path())


def mixed_family(seed: int, search: str = "target: any") -> Family:
    return Family(instance=mixed(seed, search=search), fewest=(0, 0))


@cache
def solved_alone(seed: int, workload: str = "") -> dict[Counts, int | None]:
    """Least step time on all nodes of every cluster of `mixed`, each read and solved by itself."""
    alone = "target: any, idle_nodes: false"
    return {
        counts: solve(mixed(seed, counts, workload=workload, search=alone)).step_time_ns
        for counts in product(range(3), repeat=2)
        if any(counts)
    }
