"""What nodes cost with preemptions, counted again: see `formulations.costs.renting` for the words.

Expected times here are sums over failed attempts; the best time between checkpoints is bisected.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations
from math import exp, expm1, isclose
from typing import NamedTuple

from formulations.costs.renting import LONGEST_S, MOST_EXPONENT
from formulations.instance import Instance
from formulations.instance.cluster import Spot
from formulations.instance.preemption import Preemption
from formulations.units import seconds
from solver.document import PlanDocument
from solver.verify.findings import NOISE, NOISE_NEAR_ZERO, Findings

HALVINGS = 200
HOUR_S = 3600
#: Preemptions per cycle that change no figure.
SELDOM = 1e-18


class _Used(NamedTuple):
    """Nodes of one group that a plan uses, and the terms on which there are any."""

    name: str
    nodes: int
    usd_per_hour: float
    spot: Spot | None


class Rented(NamedTuple):
    """Rent and preemptions per hour of some nodes, and time per time of steps that are kept."""

    usd_per_hour: float
    preemptions_per_hour: float
    slowdown: float

    @property
    def useful_usd_per_hour(self) -> float:
        """Money per hour of steps that are kept."""
        return self.usd_per_hour * self.slowdown


def expected_s(needed_s: float, rate: float, after_failure_s: float) -> float:
    """Until `needed_s` have passed without a preemption; every failed attempt costs more."""
    failed = expm1(rate * needed_s)  # attempts, on average
    return failed / rate + failed * after_failure_s


def interval_s(preemption: Preemption, rate: float) -> float | None:
    """Training between checkpoints; where nothing is written that which costs least, 0 if free.

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
    """Time per time of steps that are kept, at a rate per second."""
    most, every_s = exp(MOST_EXPONENT), interval_s(preemption, rate)
    if every_s is None:
        return 1.0
    whole_s = every_s + preemption.checkpoint_s
    if rate * (whole_s + preemption.restart_s) > MOST_EXPONENT + 100:
        return most
    if rate * whole_s < SELDOM:  # or checkpoints that cost nothing, at every moment
        more = whole_s / every_s if every_s else 1.0
        return min(most, exp(rate * preemption.restart_s) * more)
    recovery_s = expected_s(preemption.restart_s, rate, 0.0)
    return min(most, expected_s(whole_s, rate, recovery_s) / every_s)


def rented(
    instance: Instance, nodes_used: Sequence[int], on_spot: Collection[str], every_s: float | None
) -> Rented | None:
    """Nodes rented so, and checkpoints so often; None if they cannot be, or need not."""
    used, preemption = _used(instance, nodes_used), instance.preemption
    spots = {one.name: one.spot for one in used if one.spot is not None}
    needed = {name for name, spot in spots.items() if spot.only}
    in_order = tuple(name for name in spots if name in on_spot)
    if preemption is None or not needed <= set(on_spot) or tuple(on_spot) != in_order:
        return None
    found = _rented(used, on_spot, preemption)
    rate = found.preemptions_per_hour / HOUR_S
    best_s = interval_s(preemption, rate)
    if best_s is None or every_s is None:
        return found if best_s is every_s else None
    cycle = rate * (best_s + preemption.checkpoint_s)
    noise = NOISE + NOISE_NEAR_ZERO / cycle if cycle else 0.0
    return found if isclose(every_s, best_s, rel_tol=noise) else None


def check_renting(
    document: PlanDocument, nodes_used: Sequence[int], time_ns: int, findings: Findings
) -> Rented | None:
    """The terms of a plan, no dearer than others, and what they come to; None without any."""
    instance, claimed = document.instance, document.renting
    chooses = instance.objective.minimize == "cost_per_useful_sequence"
    if claimed is None or not chooses:
        allowed = "the terms of the nodes" if chooses else "nothing: the objective chooses no terms"
        findings.require(not chooses and claimed is None, "renting", claimed, allowed)
        return None
    own = rented(instance, nodes_used, claimed.on_spot, claimed.checkpoint_every_s)
    if own is None:
        findings.refuse("renting", claimed, "terms that are offered, checkpoints where they help")
        return None
    least = cheapest(instance, nodes_used).useful_usd_per_hour
    findings.close("renting: money per useful hour", own.useful_usd_per_hour, least)
    per_s = instance.workload.global_batch / seconds(time_ns) / own.slowdown
    figures = {
        "preemptions_per_hour": own.preemptions_per_hour,
        "availability": 1 / own.slowdown,
        "useful_sequences_per_s": per_s,
        "cost_usd_per_useful_sequence": own.usd_per_hour / HOUR_S / per_s,
    }
    for name, figure in figures.items():
        findings.close(f"renting.{name}", getattr(claimed, name), figure)
    return own


def cheapest(instance: Instance, nodes_used: Sequence[int]) -> Rented:
    """Least money per useful sequence within the limit on price; else least rent."""
    assert instance.preemption is not None  # Instance: with this objective
    limit = instance.limits.max_price_usd_per_hour
    return _cheapest(_used(instance, nodes_used), instance.preemption, limit)


def offered(instance: Instance, nodes: Sequence[int]) -> list[tuple[tuple[str, ...], Rented]]:
    """All terms within the limit on price, with groups on spot; on demand if none are chosen."""
    limit = instance.limits.max_price_usd_per_hour
    used, preemption = _used(instance, nodes), instance.preemption
    if instance.objective.minimize != "cost_per_useful_sequence" or preemption is None:
        rent = sum(one.nodes * one.usd_per_hour for one in used)
        found = [(set[str](), Rented(rent, 0.0, 1.0))]
    else:
        found = [(chosen, _rented(used, chosen, preemption)) for chosen in _choices(used)]
    return [
        (tuple(one.name for one in used if one.name in chosen), own)
        for chosen, own in found
        if limit is None or own.usd_per_hour <= limit * (1 + NOISE)
    ]


def _used(instance: Instance, nodes_used: Sequence[int]) -> tuple[_Used, ...]:
    """By group, nodes that come again among the group's own."""
    found = dict[str, _Used]()
    for group, count in zip(instance.cluster.groups, nodes_used, strict=True):
        own = _Used(group.name, count, group.price_usd_per_hour, group.spot)
        before = found.get(group.name)
        found[group.name] = before._replace(nodes=before.nodes + count) if before else own
    return tuple(one for one in found.values() if one.nodes)


def _rented(used: Sequence[_Used], on_spot: Collection[str], preemption: Preemption) -> Rented:
    rent = rate = 0.0
    for one in used:
        if one.spot is not None and one.name in on_spot:
            rent += one.nodes * one.spot.price_usd_per_hour
            rate += one.nodes * one.spot.preemptions_per_hour
        else:
            rent += one.nodes * one.usd_per_hour
    return Rented(rent, rate, slowdown(preemption, rate / HOUR_S))


@lru_cache(maxsize=1 << 14)
def _cheapest(used: tuple[_Used, ...], preemption: Preemption, limit: float | None) -> Rented:
    found = [_rented(used, chosen, preemption) for chosen in _choices(used)]
    within = [one for one in found if limit is None or one.usd_per_hour <= limit * (1 + NOISE)]
    if not within:
        return min(found, key=lambda one: one.usd_per_hour)
    return min(within, key=lambda one: one.useful_usd_per_hour)


def _choices(used: Sequence[_Used]) -> Iterator[set[str]]:
    """Every set of groups on spot."""
    spots = {one.name: one.spot for one in used if one.spot is not None}
    always = {name for name, spot in spots.items() if spot.only}
    free = sorted(spots.keys() - always)
    for some in chain.from_iterable(combinations(free, n) for n in range(len(free) + 1)):
        yield always | set(some)


def price_usd_per_hour(instance: Instance, nodes_used: Sequence[int]) -> float:
    """Rent of these numbers of nodes, on the terms that the objective chooses."""
    if instance.objective.minimize == "cost_per_useful_sequence":
        return cheapest(instance, nodes_used).usd_per_hour
    rents = [group.price_usd_per_hour for group in instance.cluster.groups]
    return sum(n * rent for n, rent in zip(nodes_used, rents, strict=True))
