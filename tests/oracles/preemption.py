"""What preemptions cost, from docs/cost.md: sums over failed attempts, and every choice of terms.

The best time between two checkpoints is bisected where the product solves for it.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import exp, expm1
from typing import NamedTuple

from formulations.instance import Instance
from formulations.instance.instance import Preemption

HALVINGS, LONGEST_S, LARGEST = 200, 1e9, exp(500.0)
#: Preemptions per cycle that change no figure.
SELDOM = 1e-18


class Rented(NamedTuple):
    """Groups on spot, money per hour, time per time of steps that are kept."""

    on_spot: tuple[str, ...]
    usd_per_hour: float
    slowdown: float

    @property
    def useful_usd_per_hour(self) -> float:
        return self.usd_per_hour * self.slowdown


def expected_s(needed_s: float, rate: float, after_failure_s: float) -> float:
    """Until `needed_s` have passed without a preemption; every failed attempt costs more."""
    failed = expm1(rate * needed_s)  # attempts, on average
    return failed / rate + failed * after_failure_s


def interval_s(preemption: Preemption, rate: float) -> float | None:
    """Training t between checkpoints; where nothing is written that which costs least, 0 if free.

    The derivative of the expected time per time is 0 where 1 - q t = e^(-q (t + d)).
    """
    if preemption.checkpoint_every_s is not None or not rate:
        return preemption.checkpoint_every_s
    low, high = 0.0, min(1 / rate, LONGEST_S)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if -expm1(-rate * (middle + preemption.checkpoint_s)) > rate * middle:
            low = middle
        else:
            high = middle
    return high


def slowdown(preemption: Preemption, rate: float) -> float:
    every_s = interval_s(preemption, rate)
    if every_s is None:
        return 1.0
    cycle_s = every_s + preemption.checkpoint_s
    if rate * (cycle_s + preemption.restart_s) > 600:
        return LARGEST
    if rate * cycle_s < SELDOM:  # or checkpoints that cost nothing, at every moment
        more = cycle_s / every_s if every_s else 1.0
        return min(LARGEST, exp(rate * preemption.restart_s) * more)
    recovery_s = expected_s(preemption.restart_s, rate, 0.0)
    return min(LARGEST, expected_s(cycle_s, rate, recovery_s) / every_s)


def all_terms(instance: Instance, nodes: Sequence[int]) -> Iterator[Rented]:
    assert instance.preemption is not None
    used = [(n, g) for n, g in zip(nodes, instance.cluster.groups, strict=True) if n]
    limit = instance.limits.max_price_usd_per_hour
    for spots in product((False, True), repeat=len(used)):
        pairs = list(zip(spots, used, strict=True))
        if any(g.spot is None if spot else g.spot and g.spot.only for spot, (_, g) in pairs):
            continue
        rented = [(n, g.spot if spot else None, g) for spot, (n, g) in pairs]
        usd = sum(n * (s or g).price_usd_per_hour for n, s, g in rented)
        rate = sum(n * s.preemptions_per_hour for n, s, _ in rented if s)
        if limit is None or usd <= limit * (1 + 1e-12):
            names = tuple(g.name for _, s, g in rented if s)
            yield Rented(names, usd, slowdown(instance.preemption, rate / 3600))
