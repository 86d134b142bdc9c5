"""On demand or on spot: the terms that cost least per useful sequence."""

import math
from itertools import pairwise, product

import pytest

from formulations.costs import renting
from formulations.instance.instance import Preemption
from tests.oracles.preemption import all_terms
from tests.recorded import Cases, recorded
from tests.small_instances import spot_instance

RATES = [0.0, 1e-12, 1e-6, 1e-4, 1e-3, 0.01, 0.3, 10.0]


@pytest.mark.parametrize("seed", range(20))
def test_terms_are_the_best_of_all(seed: int) -> None:
    """The oracle tries every choice by group, and sums up failed attempts."""
    instance = spot_instance(seed)
    used = tuple(group.nodes for group in instance.cluster.groups)
    least = min(terms.useful_usd_per_hour for terms in all_terms(instance, used))
    assert renting.terms_of(instance, used).useful_usd_per_hour == pytest.approx(least, rel=1e-7)


@recorded("renting")
def test_terms_are_the_recorded_ones() -> Cases:
    """Of all nodes, of those of the last group alone, and listed twice; under three limits."""
    for seed in range(16):
        instance = spot_instance(seed)
        groups = instance.cluster.groups
        twice = instance.but(cluster={"groups": (*groups, groups[0])})
        used = tuple(group.nodes for group in groups)
        rent = renting.rent_usd_per_hour(instance.but(objective={"minimize": "step_time"}), used)
        for limit in (None, rent, 0.7 * rent):
            limits = {"max_price_usd_per_hour": limit}
            choices = [renting.terms_of(twice.but(limits=limits), (*used, 2))]
            for nodes in (used, (0,) * (len(used) - 1) + used[-1:]):
                choices.append(renting.terms_of(instance.but(limits=limits), nodes))
                choices.extend(renting.worthwhile_terms(instance.but(limits=limits), nodes))
            yield f"{seed} {limit}", [[list(each[0]), *each[1:]] for each in choices]
        plain = instance.but(preemption=None, objective={"minimize": "step_time"})
        yield f"{seed}", [rent, len(renting.worthwhile_terms(plain, used))]
    assert renting.is_within(1.0, 1.0)
    assert not renting.is_within(1.1, 1.0)


@pytest.mark.parametrize(("mean_min", "best_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_best_interval_is_dalys(mean_min: float, best_min: float) -> None:
    """Daly (2006), figures 3 to 5: checkpoints of 5 min, restarts of 10 min."""
    preemption = Preemption(restart_s=600, checkpoint_s=300)
    best_s = renting.checkpoint_every_s(preemption, 1 / (60 * mean_min)) or 0
    assert best_s / 60 == pytest.approx(best_min, rel=0.01)


@recorded("renting")
def test_slowdowns_are_the_recorded_ones_and_grow_with_the_rate() -> Cases:
    """Intervals, and whole steps of 1 s, 400 s and 3 h; finite, and at least 1."""
    for every_s, restart, checkpoint in product((None, 5.0, 600.0), (0.0, 121.0), (0.0, 15.8)):
        preemption = Preemption(
            restart_s=restart, checkpoint_s=checkpoint, checkpoint_every_s=every_s
        )
        slowdowns = [renting.slowdown(preemption, rate) for rate in RATES]
        assert slowdowns[0] >= 1
        assert all(a <= b * (1 + 1e-15) for a, b in pairwise(slowdowns))
        pairs = product(RATES[2::3], (1, 400))
        steps = [list(renting.in_whole_steps(preemption, *pair)) for pair in pairs]
        for rate in RATES[1:-1] if every_s is None else ():  # the closed form of the least
            best = renting.best_cycle(rate * checkpoint) + rate * restart
            assert renting.slowdown(preemption, rate) == pytest.approx(
                math.exp(min(best, renting.MOST_EXPONENT))
            )
        intervals = [renting.checkpoint_every_s(preemption, rate) for rate in (5e-324, *RATES)]
        yield f"{every_s} {restart} {checkpoint}", [slowdowns, intervals, steps]
    endless = Preemption(restart_s=1e6, checkpoint_s=1e3)
    assert renting.slowdown(endless, 1e3) == math.exp(renting.MOST_EXPONENT)
    assert renting.slowdown(endless, 5e-324) == pytest.approx(1, abs=2e-6)
