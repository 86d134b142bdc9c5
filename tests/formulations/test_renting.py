"""On demand or on spot: the terms that cost least per useful sequence."""

import math
from itertools import product

import pytest

from formulations.costs.renting import slowdown, terms_of, worthwhile_terms
from formulations.instance import Instance
from formulations.instance.cluster import Spot
from formulations.instance.preemption import Preemption
from tests.small_instances import random_instance
from tests.spot_instances import USEFUL, spot_instance


def rented(*spots: Spot | None, limit: float | None = None) -> Instance:
    """Two groups of one node each at 10 USD/h on demand; restarts take 1 h, checkpoints nothing."""
    instance = next(
        one for seed in range(50) if len((one := random_instance(seed)).cluster.groups) == 2
    )
    groups = tuple(
        group.but(nodes=1, price_usd_per_hour=10.0, spot=spot)
        for group, spot in zip(instance.cluster.groups, spots, strict=True)
    )
    return instance.but(
        cluster={"groups": groups},
        limits={"max_price_usd_per_hour": limit},
        preemption=Preemption(restart_s=3600, checkpoint_s=0),
        objective=USEFUL,
    )


def spot(price: float, rate: float, *, only: bool = False) -> Spot:
    """Terms on spot."""
    return Spot(price_usd_per_hour=price, preemptions_per_hour=rate, only=only)


def test_spot_is_taken_where_preemptions_cost_less_than_it_saves() -> None:
    """One node: 5 e^q against 10, so on spot up to ln 2 = 0.69 preemptions per hour."""
    for rate, on_spot in ((0.69, True), (0.70, False)):
        terms = terms_of(rented(spot(5, rate), None), (1, 0))
        assert bool(terms.on_spot) is on_spot
        assert terms.useful_usd_per_hour == pytest.approx(5 * math.exp(rate) if on_spot else 10)


def test_a_preemption_stops_all_nodes() -> None:
    """Both nodes: (5 + 10) e^0.4 = 22.4 is more than 20, so the first is on demand too."""
    one = rented(spot(5, 0.4), None)
    assert terms_of(one, (1, 0)).on_spot == ("fast",)
    assert terms_of(one, (1, 1)).on_spot == ()
    assert terms_of(one, (1, 1)).useful_usd_per_hour == 20


def test_group_without_a_price_on_demand_is_on_spot() -> None:
    """Whatever that costs."""
    terms = terms_of(rented(spot(5, 3, only=True), None), (1, 1))
    assert terms.on_spot == ("fast",)
    assert terms.useful_usd_per_hour == pytest.approx(15 * math.exp(3))


@pytest.mark.parametrize(("limit", "on_spot"), [(20, ()), (19.9, ("fast",)), (14, ("fast",))])
def test_limit_on_price_leaves_terms_out(limit: float, on_spot: tuple[str, ...]) -> None:
    """Within the limit what costs least per useful hour; where nothing is, the least rent: 15."""
    assert terms_of(rented(spot(5, 0.4), None, limit=limit), (1, 1)).on_spot == on_spot


def test_kinds_of_nodes_of_one_group_are_rented_alike() -> None:
    """Nodes that come again are those of their group: 2 of them on spot, or none."""
    one = rented(spot(5, 0.4), None)
    first = one.cluster.groups[0].but(nodes=2)
    groups = (first, first.but(nodes=1))
    twice = one.but(cluster={"groups": groups})
    assert terms_of(twice, (1, 1)) == terms_of(twice, (2, 0))


def test_terms_that_are_worth_it() -> None:
    """On demand is fastest, on spot cheapest, 5 e^0.4 = 7.46 USD; where time counts, on demand."""
    instance = rented(spot(5, 0.4), None)
    worth = worthwhile_terms(instance, (1, 0))
    assert [terms.on_spot for terms in worth] == [(), ("fast",)]
    assert [terms.useful_usd_per_hour for terms in worth] == pytest.approx([10, 5 * math.exp(0.4)])
    timed = instance.but(objective={"minimize": "step_time"})
    (on_demand,) = worthwhile_terms(timed, (1, 1))
    assert (on_demand.on_spot, on_demand.usd_per_hour, on_demand.slowdown) == ((), 20, 1)


@pytest.mark.parametrize("seed", range(20))
def test_terms_are_the_best_of_all(seed: int) -> None:
    """No other choice by group is cheaper per useful hour."""
    instance = spot_instance(seed)
    assert instance.preemption is not None
    groups = instance.cluster.groups
    used = tuple(group.nodes for group in groups)
    found = []
    for choice in product((False, True), repeat=len(groups)):
        rent = rate = 0.0
        for chosen, group in zip(choice, groups, strict=True):
            if chosen and group.spot:
                rent += group.nodes * group.spot.price_usd_per_hour
                rate += group.nodes * group.spot.preemptions_per_hour / 3600
            elif chosen or (group.spot and group.spot.only):
                break
            else:
                rent += group.nodes * group.price_usd_per_hour
        else:
            found.append(rent * slowdown(instance.preemption, rate))
    assert terms_of(instance, used).useful_usd_per_hour == pytest.approx(min(found), rel=1e-12)
