"""Fronts of useful sequences: nodes on demand or on spot, chosen cluster by cluster."""

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from formulations.costs.renting import worthwhile_terms
from formulations.instance.family import Family
from formulations.instance.machines import Spot
from formulations.instance.preemption import Preemption
from solver.clusters.front import Figures, TimeAndMoney
from solver.front_document import Aim, FamilyResult, FrontDocument
from solver.report.document import build_front
from solver.report.front_picture import front_picture
from solver.verify import verify_front
from tests.oracles.preemption import all_terms
from tests.resealed import Changes, resealed
from tests.seeds import one_each
from tests.small_families import points_of, searched, small_family, times_by_force

#: Small families with three points or more, some on spot and some on demand.
SEEDS = (9, 40, 89)
SLOW = 1e4  #: preemptions per hour: of the largest cluster every step is made twice


def spot_family(seed: int, limit: float | None = None) -> Family:
    """Groups on demand and at a third of that on spot, taken back after a few of their tiny steps.

    Where the seed is even the second group is on spot alone.
    """
    family = small_family(seed)
    instance = family.instance
    groups = list(instance.cluster.groups)
    for j, rate in enumerate((SLOW / 4, SLOW / 10)):
        price = groups[j].price_usd_per_hour
        spot = Spot(
            price_usd_per_hour=price / 3, preemptions_per_hour=rate, only=j == 1 and seed % 2 == 0
        )
        groups[j] = groups[j].but(spot=spot)
    update = {
        "cluster": instance.cluster.but(groups=tuple(groups)),
        "objective": instance.objective.but(minimize="cost_per_useful_sequence", steps=1000),
        "limits": instance.limits.but(max_price_usd_per_hour=limit),
        "preemption": Preemption(restart_s=0.1, checkpoint_s=0.02),
    }
    return family.but(instance=instance.model_copy(update=update))


@cache
def found(seed: int) -> FamilyResult:
    """The front of such a family."""
    return searched(spot_family(seed))


@cache
def front(seed: int = SEEDS[0]) -> FrontDocument:
    """Its file."""
    return build_front(found(seed), "front")


@pytest.mark.parametrize("limit", [None, 2.0])
@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_front_is_that_of_every_plan_on_all_terms(seed: int, limit: float | None) -> None:
    """By brute force, with all terms that there are."""
    family = spot_family(seed, limit)
    known: set[Figures] = set()
    for counts, ns in times_by_force(family).items():
        for own in all_terms(family.instance, counts) if ns is not None else ():
            assert ns is not None
            known.add((ns * own.slowdown, ns * own.useful_usd_per_hour))
    best = sorted(a for a in known if not any(b < a and b[1] <= a[1] for b in known))
    best = [one for i, one in enumerate(best) if not i or one[0] > best[i - 1][0] * (1 + 1e-9)]
    result = found(seed) if limit is None else searched(family)
    ours = sorted(points_of(TimeAndMoney(family), result))
    assert ours == [pytest.approx(one) for one in best]


def within(family: Family, aim: Aim, **limits: float) -> list[float]:
    """The least figure of that aim with limits on steps that are kept, proved again."""
    instance = family.instance
    own = instance.limits.model_copy(update=limits)
    family = family.model_copy(update={"instance": instance.model_copy(update={"limits": own})})
    measure = TimeAndMoney(family, time=aim != "money", money=aim != "time")
    result = searched(family, measure, gap=0.2)
    checked = verify_front(build_front(result, aim))
    assert checked.problems == ()
    assert checked.complete
    return sorted({max(figures) for figures in points_of(measure, result)})


@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_limits_are_of_steps_that_are_kept(seed: int) -> None:
    """The least time within every budget, the least money by every deadline, whatever the gap."""
    family = spot_family(seed)
    known = {
        (ns * own.slowdown, ns * own.useful_usd_per_hour)
        for counts, ns in times_by_force(family).items()
        if ns is not None
        for own in all_terms(family.instance, counts)
    }
    times, costs = (sorted({one[i] for one in known}) for i in (0, 1))
    for cost in costs[:: max(1, len(costs) // 2)]:
        fastest = min(a for a, b in known if b <= cost * (1 + 1e-9))
        found = within(family, "time", max_cost_usd_per_step=cost * (1 + 1e-9) / 3600e9)
        assert found == [pytest.approx(fastest)]
    for time_ns in times[:: max(1, len(times) // 2)]:
        cheapest = min(b for a, b in known if a <= time_ns * (1 + 1e-9))
        found = within(family, "money", max_step_time_s=time_ns * (1 + 1e-9) / 1e9)
        assert found == [pytest.approx(cheapest)]
    assert within(family, "front", max_cost_usd_per_step=costs[0] * 0.99 / 3600e9) == []


@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_figures_grow_with_the_step_time(seed: int) -> None:
    """On all terms, which do not depend on it: so of one cluster only the least step matters."""
    family = spot_family(seed)
    measure = TimeAndMoney(family)
    for counts in family.members():
        for terms in measure.terms(counts):
            short, long = (measure.figures(counts, ns, terms) for ns in (1e6, 1e6 + 1))
            assert all(a < b for a, b in zip(short, long, strict=True))
            assert measure.reaching(counts, terms, long) == pytest.approx(1e6 + 1)


def test_terms_that_others_beat_are_left_out() -> None:
    """Fastest first, each cheaper than the one before; limits on rent hold for terms."""
    family = spot_family(SEEDS[0])
    terms = worthwhile_terms(family.instance, (2, 2))
    assert terms[0].on_spot == ()
    assert len(terms) > 1
    for fast, slow in pairwise(terms):
        assert fast.slowdown < slow.slowdown
        assert fast.useful_usd_per_hour > slow.useful_usd_per_hour
    limit = (terms[0].usd_per_hour + terms[1].usd_per_hour) / 2
    assert terms[0] not in worthwhile_terms(spot_family(SEEDS[0], limit).instance, (2, 2))


def test_a_cluster_may_stand_on_the_front_on_several_terms() -> None:
    """Dear and fast on demand, cheap and slow on spot, with one plan."""
    several = [point for seed in SEEDS for point in front(seed).points if len(point.terms) > 1]
    assert several
    for point in several:
        speeds = [terms.sequences_per_s for terms in point.terms]
        assert speeds == sorted(speeds, reverse=True)


@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_front_is_proved_again(seed: int) -> None:
    """Every point on all its terms, and where every other cluster stands."""
    checked = verify_front(front(seed))
    assert checked.problems == ()
    assert checked.complete


def test_limits_on_rent_and_gaps_are_proved_again() -> None:
    """The limit is on the terms: plans on nodes that are too dear on demand count all the same."""
    family = spot_family(SEEDS[0], 2.0)
    result = searched(family, gap=0.05)
    assert result.points
    assert verify_front(build_front(result, "front")).complete


def _fewer_terms(fields: dict[str, Any]) -> None:
    point = next(point for point in fields["points"] if len(point["terms"]) > 1)
    point["terms"].pop(0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (_fewer_terms, "bound_ns"),
        ({"points.0.terms.0.on_spot": ["none"]}, "on_spot"),
        ({"points.-1.terms.-1.availability": 1.0}, "availability"),
    ],
)
def test_forged_terms_are_refused(changes: Changes, named: str) -> None:
    """Terms that are missing, not offered, or better than they are."""
    seed = next(s for s in SEEDS if any(len(point.terms) > 1 for point in front(s).points))
    found = verify_front(resealed(front(seed), changes))
    assert any(named in problem for problem in found.problems)


def test_picture_says_what_its_axes_are() -> None:
    """Useful sequences both ways, and a mark for every cluster on each of its terms."""
    document = front()
    picture = front_picture(document)
    assert picture.count("useful sequences") > 2
    assert "on spot" in picture
    shown = [one.nodes for one in document.clusters if one.standing != "infeasible"]
    marks = sum(len(worthwhile_terms(document.family.instance, nodes)) for nodes in shown)
    assert picture.count("<title>") == marks + 1
