"""On which terms the nodes of a plan are rented, and what training costs with preemptions.

A group has a price on demand, or on spot with a rate of preemptions, or both: then all nodes of the
group that a plan uses are rented on the same terms, chosen with the plan. A group stands in one
zone, so prices by group are prices by zone.

Objective. Money per useful sequence: rent x step time x slowdown / global batch, all nodes paid for
all the time. The slowdown, E(t) / t below, depends on the terms alone, and
so, by `terms_of`, on the numbers of nodes used: within a configuration the objective is the step
time times a constant. A lower bound of the step time times that constant is one of the objective,
and whatever closes configurations by step times closes them by this objective.

How long training takes with preemptions, by checkpoints and restarts, in closed form.
Preemptions of all nodes together are a Poisson process of rate q. After every t of training a
checkpoint takes d. A preemption loses all since the last whole checkpoint; training goes on from it
once no further preemption has come for R, in which a replacement gets ready and all restart. The
expected time for t of training is then

    E(t) = e^(q R) (e^(q (t + d)) - 1) / q                                                       (1)

Proof. The process has no memory. An attempt at the c = t + d of one checkpoint to the next ends
undisturbed with probability e^(-q c), so there are e^(q c) - 1 failed ones on average; attempts
last (1 - e^(-q c)) / q on average, all together (e^(q c) - 1) / q. After every failed one comes a
recovery, as long as it takes until no preemption has come for R: (e^(q R) - 1) / q on average, by
the same argument. The sum is (1) (Daly, FGCS 22(3):303, 2006, equation 20).

`slowdown` is E(t) / t; 1 / slowdown is the availability. To first order it is
1 + d / t + q (R + d + (t + d) / 2): checkpoints, and per preemption recovery and lost work.

It increases with q, as (e^(q c) - 1) / q does (its series has no negative coefficient), and so
does its least value over all t. It does not depend on the step time: checkpoints are taken to be
possible at any moment, which the least value over whole steps cannot be below.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from formulations.instance import Instance
from formulations.instance.instance import Preemption
from formulations.units import SECONDS_PER_HOUR

#: Longer by e to this, all slowdowns are equal: no training ends, and products stay finite.
MOST_EXPONENT = 500.0
LONGEST_S = 1e9


def best_cycle(checkpoint: float) -> float:
    """Value of q (t + d) at the t for which E(t) / t is least; checkpoint: q d.

    Where the derivative is 0, z = q (t + d) fulfils z + e^(-z) - 1 = q d. The left side is convex
    and increases, so Newton's steps from beyond the root, 1 + q d, come down to it. At the root
    (e^z - 1) / (q t) = e^z, so that the least slowdown is e^(z + q R).
    """
    if not checkpoint:
        return 0.0
    z = 1 + checkpoint
    while 0 < (lower := z + (z + math.expm1(-z) - checkpoint) / math.expm1(-z)) < z:
        z = lower
    return z


def checkpoint_every_s(preemption: Preemption, rate_per_s: float) -> float | None:
    """Training between two checkpoints: as given, or what costs least; None: there are none.

    At most LONGEST_S: once in 30 years is never.
    """
    if preemption.checkpoint_every_s is not None or not rate_per_s:
        return preemption.checkpoint_every_s
    checkpoint = preemption.checkpoint_s * rate_per_s
    return min(LONGEST_S, (best_cycle(checkpoint) - checkpoint) / rate_per_s)


def slowdown(preemption: Preemption, rate_per_s: float) -> float:
    """Expected time per time of training that is kept, at least 1; see the module's text.

    rate_per_s: preemptions of all nodes together.
    """
    every_s = checkpoint_every_s(preemption, rate_per_s)
    if every_s is None:
        return 1.0
    cycle_s = every_s + preemption.checkpoint_s
    cycle = rate_per_s * cycle_s
    exponent = rate_per_s * preemption.restart_s + cycle
    if cycle:
        exponent += math.log(-math.expm1(-cycle) / cycle)
    if every_s:  # else checkpoints cost nothing
        exponent += math.log(cycle_s / every_s)
    return math.exp(min(MOST_EXPONENT, exponent))


def in_whole_steps(preemption: Preemption, rate_per_s: float, step_s: float) -> tuple[int, float]:
    """Steps between two checkpoints near `checkpoint_every_s`, and the slowdown with them.

    The better of the numbers next to it. Raises ValueError where there are no checkpoints.
    """
    every_s = checkpoint_every_s(preemption, rate_per_s)
    if every_s is None:
        raise ValueError("without preemptions there are no checkpoints")
    fewer = max(1, math.floor(every_s / step_s))

    def slowed(steps: int) -> float:
        every = preemption.model_copy(update={"checkpoint_every_s": steps * step_s})
        return slowdown(every, rate_per_s)

    best = min(fewer, fewer + 1, key=slowed)
    return best, slowed(best)


#: Relative float noise in sums of prices.
_NOISE = 1e-12


class Terms(NamedTuple):
    """How the nodes used are rented: groups on spot, rent, and preemptions of all."""

    on_spot: tuple[str, ...]
    usd_per_hour: float
    preemptions_per_hour: float
    slowdown: float

    @property
    def useful_usd_per_hour(self) -> float:
        """Money per hour of steps that are kept."""
        return self.usd_per_hour * self.slowdown


class _Offer(NamedTuple):
    """Terms of all nodes of one group that are used; spot: its name, None on demand."""

    spot: str | None
    usd_per_hour: float
    preemptions_per_hour: float


def chooses_terms(instance: Instance) -> bool:
    """Whether nodes are rented on demand or on spot, as money per useful sequence is least."""
    return instance.objective.minimize == "cost_per_useful_sequence"


def rent_usd_per_hour(instance: Instance, nodes_used: Sequence[int]) -> float:
    """Rent of these numbers of nodes per group: on demand, unless the objective chooses terms."""
    if chooses_terms(instance):
        return terms_of(instance, nodes_used).usd_per_hour
    groups = zip(nodes_used, instance.cluster.groups, strict=True)
    return sum(n * group.price_usd_per_hour for n, group in groups)


def terms_of(instance: Instance, nodes_used: Sequence[int]) -> Terms:
    """The terms of least money per useful sequence for these numbers of nodes per group.

    Among those within the limit on price per hour, if any is; else those of least rent.
    """
    assert instance.preemption is not None  # resolved with the objective that asks for it
    offers = _offers(instance, nodes_used)
    within = _worthwhile(offers, instance.preemption, instance.limits.max_price_usd_per_hour)
    if within:
        return within[-1]
    return min(_choices(offers, instance.preemption), key=lambda terms: terms.usd_per_hour)


def worthwhile_terms(instance: Instance, nodes: Sequence[int]) -> tuple[Terms, ...]:
    """Terms within the limit on price per hour that no other beat in useful time and money.

    Fastest first, so that money per useful sequence falls. On demand alone where the objective
    chooses none.
    """
    limit = instance.limits.max_price_usd_per_hour
    if instance.preemption is not None and chooses_terms(instance):
        return _worthwhile(_offers(instance, nodes), instance.preemption, limit)
    on_demand = Terms((), rent_usd_per_hour(instance, nodes), 0.0, 1.0)
    return (on_demand,) if is_within(on_demand.usd_per_hour, limit) else ()


def _offers(instance: Instance, nodes_used: Sequence[int]) -> tuple[tuple[_Offer, ...], ...]:
    """By group, on demand first; nodes that come again are among the group's own."""
    together = dict[str, int]()
    for group, count in zip(instance.cluster.groups, nodes_used, strict=True):
        together[group.name] = together.get(group.name, 0) + count
    groups, offers = {group.name: group for group in instance.cluster.groups}, []
    for name, nodes in together.items():
        group_offers, spot = list[_Offer](), groups[name].spot
        if spot is None or not spot.only:
            group_offers.append(_Offer(None, nodes * groups[name].price_usd_per_hour, 0.0))
        if spot is not None:
            rent, rate = spot.price_usd_per_hour, spot.preemptions_per_hour
            group_offers.append(_Offer(name, nodes * rent, nodes * rate))
        if nodes:
            offers.append(tuple(group_offers))
    return tuple(offers)


def _choices(offers: tuple[tuple[_Offer, ...], ...], preemption: Preemption) -> Iterator[Terms]:
    """All: at most 2 to the number of groups with both prices, MOST_CHOICES_OF_TERMS."""
    for chosen in product(*offers):
        rate = sum(offer.preemptions_per_hour for offer in chosen)
        yield Terms(
            on_spot=tuple(offer.spot for offer in chosen if offer.spot is not None),
            usd_per_hour=sum(offer.usd_per_hour for offer in chosen),
            preemptions_per_hour=rate,
            slowdown=slowdown(preemption, rate / SECONDS_PER_HOUR),
        )


@lru_cache(maxsize=1 << 16)
def _worthwhile(
    offers: tuple[tuple[_Offer, ...], ...], preemption: Preemption, limit: float | None
) -> tuple[Terms, ...]:
    within = (
        terms for terms in _choices(offers, preemption) if is_within(terms.usd_per_hour, limit)
    )
    best = list[Terms]()
    for terms in sorted(within, key=lambda terms: (terms.slowdown, terms.useful_usd_per_hour)):
        if not best or terms.useful_usd_per_hour < best[-1].useful_usd_per_hour:
            best.append(terms)
    return tuple(best)


def is_within(usd_per_hour: float, limit: float | None) -> bool:
    """Whether a rent is within a limit on it, but for the noise of sums."""
    return limit is None or usd_per_hour <= limit * (1 + _NOISE)
