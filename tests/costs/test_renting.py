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
from tests.oracles.preemption import all_terms
from tests.small_instances import random_instance
from tests.spot_instances import USEFUL, spot_instance


def rented(
    price: float, rate: float, *, only: bool = False, limit: float | None = None
) -> Instance:
    """Two groups of one node each at 10 USD/h, the first on spot too; restarts take 1 h."""
    instances = map(random_instance, range(50))
    instance = next(one for one in instances if len(one.cluster.groups) == 2)
    spot = Spot(price_usd_per_hour=price, preemptions_per_hour=rate, only=only)
    groups = tuple(
        group.but(nodes=1, price_usd_per_hour=10.0, spot=terms)
        for group, terms in zip(instance.cluster.groups, (spot, None), strict=True)
    )
    return instance.but(
        cluster={"groups": groups},
        limits={"max_price_usd_per_hour": limit},
        preemption=Preemption(restart_s=3600, checkpoint_s=0),
        objective=USEFUL,
    )


@pytest.mark.parametrize(
    ("instance", "used", "on_spot", "useful_usd_per_hour"),
    [
        # one node: 5 e^q against 10, so on spot up to ln 2 = 0.69 preemptions per hour
        (rented(5, 0.69), (1, 0), ("fast",), 5 * math.exp(0.69)),
        (rented(5, 0.70), (1, 0), (), 10),
        # a preemption stops both nodes: (5 + 10) e^0.4 = 22.4 is more than 20
        (rented(5, 0.4), (1, 1), (), 20),
        # a group without a price on demand, whatever it costs
        (rented(5, 3, only=True), (1, 1), ("fast",), 15 * math.exp(3)),
        # within the limit what costs least per useful hour; where nothing is, the least rent: 15
        (rented(5, 0.4, limit=20), (1, 1), (), 20),
        (rented(5, 0.4, limit=19.9), (1, 1), ("fast",), 15 * math.exp(0.4)),
        (rented(5, 0.4, limit=14), (1, 1), ("fast",), 15 * math.exp(0.4)),
    ],
)
def test_terms_by_hand(
    instance: Instance, used: tuple[int, int], on_spot: tuple[str, ...], useful_usd_per_hour: float
) -> None:
    terms = terms_of(instance, used)
    assert terms.on_spot == on_spot
    assert terms.useful_usd_per_hour == pytest.approx(useful_usd_per_hour)


def test_kinds_of_nodes_of_one_group_are_rented_alike() -> None:
    """Nodes that come again are those of their group: 2 of them on spot, or none."""
    one = rented(5, 0.4)
    first = one.cluster.groups[0].but(nodes=2)
    twice = one.but(cluster={"groups": (first, first.but(nodes=1))})
    assert terms_of(twice, (1, 1)) == terms_of(twice, (2, 0))


def test_terms_that_are_worth_it() -> None:
    """On demand is fastest, on spot cheapest, 5 e^0.4 = 7.46 USD; where time counts, on demand."""
    instance = rented(5, 0.4)
    worth = worthwhile_terms(instance, (1, 0))
    assert [terms.on_spot for terms in worth] == [(), ("fast",)]
    assert [terms.useful_usd_per_hour for terms in worth] == pytest.approx([10, 5 * math.exp(0.4)])
    (free,) = worthwhile_terms(rented(10, 0.0), (1, 0))  # as dear, and as fast
    assert free.on_spot == ()
    (on_demand,) = worthwhile_terms(instance.but(objective={"minimize": "step_time"}), (1, 1))
    assert (on_demand.on_spot, on_demand.usd_per_hour, on_demand.slowdown) == ((), 20, 1)


@pytest.mark.parametrize("seed", range(20))
def test_terms_are_the_best_of_all(seed: int) -> None:
    """The oracle tries every choice by group, and sums up failed attempts."""
    instance = spot_instance(seed)
    used = tuple(group.nodes for group in instance.cluster.groups)
    least = min(terms.useful_usd_per_hour for terms in all_terms(instance, used))
    assert terms_of(instance, used).useful_usd_per_hour == pytest.approx(least, rel=1e-7)


RATES = [0.0, 1e-12, 1e-6, 1e-4, 1e-3, 0.01, 0.3, 10.0]


@pytest.mark.parametrize(("mean_min", "best_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_best_interval_is_dalys(mean_min: float, best_min: float) -> None:
    """Daly (2006), figures 3 to 5: checkpoints of 5 min, restarts of 10 min."""
    preemption = Preemption(restart_s=600, checkpoint_s=300)
    best_s = checkpoint_every_s(preemption, 1 / (60 * mean_min)) or 0
    assert best_s / 60 == pytest.approx(best_min, rel=0.01)


def test_slowdowns_by_hand() -> None:
    """One preemption in 1/ln 2 s: an attempt at 2 s + 1 s fails 7 times for every success.

    Seven failed attempts and the last one take 7 / ln 2 in all; a recovery of 1 s takes 1 / ln 2.
    So 2 s of training take 14 / ln 2. Where checkpoints cost nothing, recoveries do: e^(q R).
    """
    preemption = Preemption(restart_s=1, checkpoint_s=1, checkpoint_every_s=2)
    assert slowdown(preemption, math.log(2)) == pytest.approx(7 / math.log(2))
    assert best_cycle(0.0) == 0.0
    assert slowdown(Preemption(restart_s=50, checkpoint_s=0), 0.01) == pytest.approx(math.e**0.5)


def test_without_preemptions_only_stated_checkpoints_cost() -> None:
    """Nothing is written unless the instance says so: 10 s after every 100 s are 10 %."""
    free = Preemption(restart_s=100, checkpoint_s=10)
    assert slowdown(free, 0.0) == 1.0
    assert checkpoint_every_s(free, 0.0) is None
    assert slowdown(free.but(checkpoint_every_s=100.0), 0.0) == 1.1


@pytest.mark.parametrize("every_s", [None, 5.0, 600.0])
def test_more_preemptions_never_help(every_s: float | None) -> None:
    for restart, checkpoint in product((0.0, 121.0), (0.0, 15.8)):
        preemption = Preemption(
            restart_s=restart, checkpoint_s=checkpoint, checkpoint_every_s=every_s
        )
        slowdowns = [slowdown(preemption, rate) for rate in RATES]
        assert slowdowns[0] >= 1
        assert all(a <= b * (1 + 1e-15) for a, b in pairwise(slowdowns))


@pytest.mark.parametrize("rate", RATES[1:-1])
@pytest.mark.parametrize("checkpoint_s", [0.5, 15.8, 700.0])
def test_no_interval_is_better_than_the_best(rate: float, checkpoint_s: float) -> None:
    """The closed form of the least is the formula at that interval, and below all others."""
    preemption = Preemption(restart_s=121, checkpoint_s=checkpoint_s)
    best_s, least = checkpoint_every_s(preemption, rate), slowdown(preemption, rate)
    assert best_s is not None
    for factor in (0.5, 0.9, 1.0, 1.1, 2.0):
        stated = preemption.but(checkpoint_every_s=best_s * factor)
        assert slowdown(stated, rate) >= least * (1 - 1e-12)
    closed = math.exp(rate * 121 + best_cycle(rate * checkpoint_s))
    assert least == pytest.approx(min(closed, math.exp(MOST_EXPONENT)), rel=1e-7)


def test_whole_steps_cost_no_less() -> None:
    """Of steps of 400 s two make a cycle where 825 s were best; short steps lose nothing."""
    preemption, rate = Preemption(restart_s=121, checkpoint_s=100), 1 / (1.1 * 3600)
    assert checkpoint_every_s(preemption, rate) == pytest.approx(825, abs=1)
    least = slowdown(preemption, rate)
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
    assert slowdown(free.but(checkpoint_every_s=1e-3), rate) == pytest.approx(15.801 / 1e-3)


def test_endless_recoveries_stay_finite() -> None:
    for every_s in (None, 1e6):
        preemption = Preemption(restart_s=1e6, checkpoint_s=1e3, checkpoint_every_s=every_s)
        assert slowdown(preemption, 1e3) == math.exp(MOST_EXPONENT)
