"""On demand or on spot: the terms that cost least per useful sequence."""

import math
from itertools import pairwise, product

import pytest

from formulations.costs.renting import (
    MOST_EXPONENT,
    best_cycle,
    checkpoint_every_s,
    in_whole_steps,
    slowdown,
    terms_of,
    worthwhile_terms,
)
from formulations.instance import Instance
from formulations.instance.machines import Spot
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
    (free,) = worthwhile_terms(rented(spot(10, 0.0), None), (1, 0))  # as dear, and as fast
    assert free.on_spot == ()
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


HOUR_S = 3600.0
RATES = [0.0, 1e-12, 1e-6, 1e-4, 1e-3, 0.01, 0.3, 10.0]
COSTS = [
    Preemption(restart_s=restart, checkpoint_s=checkpoint, checkpoint_every_s=every)
    for restart in (0.0, 121.0)
    for checkpoint in (0.0, 15.8)
    for every in (None, 5.0, 600.0)
]


@pytest.mark.parametrize(("mean_min", "best_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_best_interval_is_dalys(mean_min: float, best_min: float) -> None:
    """Daly (2006), figures 3 to 5: checkpoints of 5 min, restarts of 10 min."""
    preemption = Preemption(restart_s=600, checkpoint_s=300)
    found = checkpoint_every_s(preemption, 1 / (60 * mean_min))
    assert found is not None
    assert found / 60 == pytest.approx(best_min, rel=0.01)


def test_expected_time_by_hand() -> None:
    """One preemption in 1/ln 2 s: an attempt at 2 s + 1 s fails 7 times for every success.

    Seven failed attempts and the last one take 7 / ln 2 in all; a recovery of 1 s takes 1 / ln 2.
    So 2 s of training take 14 / ln 2.
    """
    preemption = Preemption(restart_s=1, checkpoint_s=1, checkpoint_every_s=2)
    assert slowdown(preemption, math.log(2)) == pytest.approx(7 / math.log(2))


def test_without_preemptions_only_stated_checkpoints_cost() -> None:
    """Nothing is written unless the instance says so: 10 s after every 100 s are 10 %."""
    free = Preemption(restart_s=100, checkpoint_s=10)
    assert slowdown(free, 0.0) == 1.0
    assert checkpoint_every_s(free, 0.0) is None
    assert slowdown(free.but(checkpoint_every_s=100.0), 0.0) == 1.1


@pytest.mark.parametrize("preemption", COSTS)
def test_more_preemptions_never_help(preemption: Preemption) -> None:
    """The slowdown increases with the rate, from 1 or more."""
    found = [slowdown(preemption, rate) for rate in RATES]
    assert found[0] >= 1
    assert all(a <= b * (1 + 1e-15) for a, b in pairwise(found))


@pytest.mark.parametrize("rate", RATES[1:-1])
@pytest.mark.parametrize("checkpoint_s", [0.5, 15.8, 700.0])
def test_no_interval_is_better_than_the_best(rate: float, checkpoint_s: float) -> None:
    """The closed form of the least is the formula at that interval, and below all others."""
    preemption = Preemption(restart_s=121, checkpoint_s=checkpoint_s)
    best_s, least = checkpoint_every_s(preemption, rate), slowdown(preemption, rate)
    assert best_s is not None
    for factor in (0.5, 0.9, 1.0, 1.1, 2.0):
        one = preemption.but(checkpoint_every_s=best_s * factor)
        assert slowdown(one, rate) >= least * (1 - 1e-12)
    closed = math.exp(rate * 121 + best_cycle(rate * checkpoint_s))
    assert least == pytest.approx(min(closed, math.exp(MOST_EXPONENT)), rel=1e-7)


def test_checkpoints_that_cost_nothing_leave_the_recovery() -> None:
    """With d = 0 the least slowdown is e^(q R)."""
    assert best_cycle(0.0) == 0.0
    assert slowdown(Preemption(restart_s=50, checkpoint_s=0), 0.01) == pytest.approx(math.e**0.5)


def test_whole_steps_cost_no_less() -> None:
    """Of steps of 400 s two make a cycle where 825 s were best; short steps lose nothing."""
    preemption, rate = Preemption(restart_s=121, checkpoint_s=100), 1 / (1.1 * HOUR_S)
    best_s, least = checkpoint_every_s(preemption, rate), slowdown(preemption, rate)
    assert best_s == pytest.approx(825, abs=1)
    steps, found = in_whole_steps(preemption, rate, 400)
    assert steps == 2
    assert found > least
    assert in_whole_steps(preemption, rate, 1)[1] == pytest.approx(least, rel=1e-6)
    assert in_whole_steps(preemption, rate, 1e4)[0] == 1


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-30, 1e-18])
def test_preemptions_that_never_come_cost_nothing(rate: float) -> None:
    """However small the rate, the interval is a length of time, and stated checkpoints cost."""
    free = Preemption(restart_s=121, checkpoint_s=15.8)
    assert slowdown(free, rate) == pytest.approx(1, abs=1e-7)
    assert checkpoint_every_s(free, rate) == 1e9
    every = free.but(checkpoint_every_s=1e-3)
    assert slowdown(every, rate) == pytest.approx(15.801 / 1e-3)


def test_endless_recoveries_stay_finite() -> None:
    """Preemptions far faster than recoveries give the largest slowdown, and no overflow."""
    for every_s in (None, 1e6):
        preemption = Preemption(restart_s=1e6, checkpoint_s=1e3, checkpoint_every_s=every_s)
        assert slowdown(preemption, 1e3) == math.exp(MOST_EXPONENT)
