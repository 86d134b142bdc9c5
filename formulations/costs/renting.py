"""On which terms the nodes of a plan are rented, and what training costs with preemptions.

A group has a price on demand, or on spot with a rate of preemptions, or both: then all nodes of the
group that a plan uses are rented on the same terms, chosen with the plan. A group stands in one
zone, so prices by group are prices by zone.

Objective. Money per useful sequence: rent x step time x slowdown / global batch, all nodes paid for
all the time. The slowdown, see `formulations.costs.availability`, depends on the terms alone, and
so, by `terms_of`, on the numbers of nodes used: within a shape the objective is the step time times
a constant. A lower bound of the step time times that constant is one of the objective, and whatever
closes shapes by step times closes them by this objective.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import inf
from typing import NamedTuple

from formulations.costs.availability import slowdown
from formulations.instance import Instance, NodeGroup
from formulations.instance.preemption import Preemption
from formulations.units import SECONDS_PER_HOUR

#: Relative float noise in sums of prices.
_NOISE = 1e-12


class Terms(NamedTuple):
    """How the nodes used are rented: groups on spot, rent, and preemptions of all."""

    on_spot: tuple[str, ...]
    usd_per_hour: float
    preemptions_per_hour: float
    slowdown: float

    @property
    def preemptions_per_s(self) -> float:
        """The rate for `formulations.costs.availability`."""
        return self.preemptions_per_hour / SECONDS_PER_HOUR

    @property
    def useful_usd_per_hour(self) -> float:
        """Money per hour of steps that are kept."""
        return self.usd_per_hour * self.slowdown


class _Offer(NamedTuple):
    """Terms of all nodes of one group that are used; spot: its name, None on demand."""

    spot: str | None
    usd_per_hour: float
    preemptions_per_hour: float


def terms_of(instance: Instance, nodes_used: Sequence[int]) -> Terms:
    """The terms of least money per useful sequence for these numbers of nodes per group.

    Among those within the limit on price per hour, if any is; else those of least rent. All are
    looked at: at most 2 to the number of groups with both prices, MOST_CHOICES_OF_TERMS.
    """
    assert instance.preemption is not None  # resolved with the objective that asks for it
    offers = _all_offers(instance, nodes_used)
    return _best(offers, instance.preemption, instance.limits.max_price_usd_per_hour)


def worthwhile_terms(instance: Instance, nodes: Sequence[int]) -> tuple[Terms, ...]:
    """Terms within the limit on price per hour that no other beat in useful time and money.

    Fastest first. On demand alone where the objective chooses none.
    """
    limit = instance.limits.max_price_usd_per_hour
    if instance.preemption is not None and chooses_terms(instance):
        return _worthwhile(_all_offers(instance, nodes), instance.preemption, limit)
    groups = zip(nodes, instance.cluster.groups, strict=True)
    on_demand = Terms((), sum(n * group.price_usd_per_hour for n, group in groups), 0.0, 1.0)
    return _within([on_demand], limit)


def chooses_terms(instance: Instance) -> bool:
    """Whether nodes are rented on demand or on spot, as money per useful sequence is least."""
    return instance.objective.minimize == "cost_per_useful_sequence"


def _all_offers(instance: Instance, nodes_used: Sequence[int]) -> tuple[tuple[_Offer, ...], ...]:
    """By group, nodes that come again among the group's own."""
    together = dict[str, int]()
    for group, count in zip(instance.cluster.groups, nodes_used, strict=True):
        together[group.name] = together.get(group.name, 0) + count
    groups = {group.name: group for group in instance.cluster.groups}
    return tuple(tuple(_offers(groups[name], n)) for name, n in together.items() if n)


def _offers(group: NodeGroup, nodes: int) -> Iterator[_Offer]:
    """On demand first."""
    spot = group.spot
    if spot is None or not spot.only:
        yield _Offer(None, nodes * group.price_usd_per_hour, 0.0)
    if spot is not None:
        rent, rate = spot.price_usd_per_hour, spot.preemptions_per_hour
        yield _Offer(group.name, nodes * rent, nodes * rate)


@lru_cache(maxsize=1 << 16)
def _best(
    offers: tuple[tuple[_Offer, ...], ...], preemption: Preemption, limit: float | None
) -> Terms:
    choices = [_terms(chosen, preemption) for chosen in product(*offers)]
    within = _within(choices, limit)
    if not within:
        return min(choices, key=lambda terms: terms.usd_per_hour)
    return min(within, key=lambda terms: terms.useful_usd_per_hour)


@lru_cache(maxsize=1 << 16)
def _worthwhile(
    offers: tuple[tuple[_Offer, ...], ...], preemption: Preemption, limit: float | None
) -> tuple[Terms, ...]:
    within = _within([_terms(chosen, preemption) for chosen in product(*offers)], limit)
    found: list[Terms] = []
    for terms in sorted(within, key=lambda terms: (terms.slowdown, terms.useful_usd_per_hour)):
        if not found or terms.useful_usd_per_hour < found[-1].useful_usd_per_hour:
            found.append(terms)
    return tuple(found)


def _within(choices: Iterable[Terms], limit: float | None) -> tuple[Terms, ...]:
    most = inf if limit is None else limit * (1 + _NOISE)
    return tuple(terms for terms in choices if terms.usd_per_hour <= most)


def _terms(chosen: Sequence[_Offer], preemption: Preemption) -> Terms:
    rate = sum(one.preemptions_per_hour for one in chosen)
    return Terms(
        on_spot=tuple(one.spot for one in chosen if one.spot is not None),
        usd_per_hour=sum(one.usd_per_hour for one in chosen),
        preemptions_per_hour=rate,
        slowdown=slowdown(preemption, rate / SECONDS_PER_HOUR),
    )


def rent_usd_per_hour(instance: Instance, nodes_used: Sequence[int]) -> float:
    """Rent of these numbers of nodes per group: on demand, unless the objective chooses terms."""
    if instance.objective.minimize == "cost_per_useful_sequence":
        return terms_of(instance, nodes_used).usd_per_hour
    groups = instance.cluster.groups
    return sum(n * group.price_usd_per_hour for n, group in zip(nodes_used, groups, strict=True))
