"""Expected times with preemptions, in closed form."""

import math
from itertools import pairwise

import pytest

from formulations.costs.renting import (
    MOST_EXPONENT,
    best_cycle,
    checkpoint_every_s,
    in_whole_steps,
    slowdown,
)
from formulations.instance.preemption import Preemption

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
