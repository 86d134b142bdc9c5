"""A plan of lengths on steps that it was not made from, beside three other ways to choose.

Every step draws as many sequences as the histogram counts, each from a class by its share of them
and evenly within the class, and deals them to rows and replicas one by one (`deal`). The ways:

- plan: the groups of the plan, whatever the step holds;
- single: the strategy that alone is best for the histogram, without a switch;
- fastest: as HotSPa's users choose (SOSP 2024, section 6): ranges of lengths that end at powers of
  two, each for the strategy that runs it fastest, switches left out of the choice, shortest first;
- clairvoyant: groups chosen for the step's own counts; never worse than the other three.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

import numpy as np

from formulations.lengths.problem import Atom, Measured, Mixed
from formulations.lengths.strategy_time import strategy_times
from formulations.lengths.tour import Group, Tour, best_single, hops
from formulations.units import ceil_div
from solver.lengths.ascending import ascending
from solver.lengths.deal import deal

Way = Literal["plan", "single", "fastest", "clairvoyant"]
#: Lengths that were drawn, [atom].
Step = Sequence[Sequence[int]]

#: Every dispatch is within this of the best that there is, or exchanges help no more.
GAP: Final = 0.005
#: The first range of `fastest`, tokens.
FIRST_RANGE: Final = 1024


@dataclass(frozen=True)
class Judgement:
    """Times of the judged steps by every way that has one, ns, [step]; how many were asked for."""

    times_ns: Mapping[Way, tuple[int, ...]]
    num_asked: int

    def mean_ns(self, way: Way) -> int:
        """Mean time of a step."""
        return round(np.mean(self.times_ns[way]))

    def percentile_95_ns(self, way: Way) -> int:
        """Time that 95 % of the steps keep."""
        return round(np.percentile(self.times_ns[way], 95))


def judge(
    mixed: Mixed,
    plan: Tour,
    num_steps: int,
    seed: int,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> Judgement:
    """Times of steps drawn from the histogram; equal seeds draw equal steps.

    `tell` hears how many steps of how many are done. Ctrl-C ends it with those, if there are any.
    """
    ways: dict[Way, Tour | None] = {
        "plan": plan,
        "single": _single(mixed),
        "fastest": _fastest(mixed),
    }
    tours = {way: tour for way, tour in ways.items() if tour is not None}
    found = list[dict[Way, int]]()
    with suppress(KeyboardInterrupt):
        for done, step in enumerate(_drawn(mixed.atoms, num_steps, seed)):
            tell(done, num_steps)
            found.append(_judged(mixed, tours, step))
    if not found:
        raise KeyboardInterrupt
    times: dict[Way, tuple[int, ...]] = {way: tuple(one[way] for one in found) for way in found[0]}
    return Judgement(times, num_steps)


def _judged(mixed: Mixed, tours: Mapping[Way, Tour], step: Step) -> dict[Way, int]:
    """Times of one step by the ways, and by the clairvoyant one."""
    dealt = _Dealt(mixed, step)
    judged = {way: dealt.time_ns(tour) for way, tour in tours.items()}
    own, least = _clairvoyant(mixed, step), min(judged.values())
    return judged | {"clairvoyant": least if own is None else min(least, dealt.time_ns(own))}


def _drawn(atoms: Sequence[Atom], num_steps: int, seed: int) -> Iterator[Step]:
    """Lengths of so many steps."""
    generator = np.random.default_rng(seed)
    counts = np.array([atom.count for atom in atoms])
    shortest = [1, *(atom.tokens + 1 for atom in atoms[:-1])]
    for _ in range(num_steps):
        drawn = generator.multinomial(counts.sum(), counts / counts.sum())
        yield [
            generator.integers(low, atom.tokens, number, endpoint=True).tolist()
            for low, atom, number in zip(shortest, atoms, drawn, strict=True)
        ]


def _single(mixed: Mixed) -> Tour | None:
    """The strategy that alone takes the least time; None if none takes all lengths."""
    best, every = best_single(mixed), tuple(range(len(mixed.atoms)))
    return best and Tour(best[0], (Group(best[0], every),))


def _fastest(mixed: Mixed) -> Tour | None:
    """Every range of lengths for its fastest strategy; None if a range or a switch has none."""
    ranges = groupby(
        range(len(mixed.atoms)),
        key=lambda k: (ceil_div(mixed.atoms[k].tokens, FIRST_RANGE) - 1).bit_length(),
    )
    times, groups = strategy_times(mixed), list[Group]()
    for atoms in (tuple(own) for _, own in ranges):
        known = [
            (time, q) for q, own in enumerate(times) if (time := own.of_set(atoms)) is not None
        ]
        if not known:
            return None
        groups.append(Group(min(known)[1], atoms))
    tour = Tour(groups[-1].strategy, _joined(groups))
    impossible = any(hop.time_ns is None for hop in hops(mixed.switching, tour))
    return None if impossible else tour


def _clairvoyant(mixed: Mixed, step: Step) -> Tour | None:
    """The best groups in ascending order for the step's own counts."""
    held = [k for k, lengths in enumerate(step) if lengths]
    strategies = (
        replace(one, atoms_ns=tuple(_measured_ns(one, mixed.atoms, k, step) for k in held))
        if isinstance(one, Measured)
        else one
        for one in mixed.strategies
    )
    atoms = tuple(Atom(mixed.atoms[k].tokens, len(step[k])) for k in held)
    tour = ascending(replace(mixed, atoms=atoms, strategies=tuple(strategies)))
    if tour is None:
        return None
    groups = (Group(one.strategy, tuple(held[k] for k in one.atoms)) for one in tour.groups)
    return Tour(tour.anchor, tuple(groups))


def _joined(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The same with neighbours of one strategy as one group."""
    runs = groupby(groups, key=lambda group: group.strategy)
    return tuple(
        Group(strategy, tuple(k for group in run for k in group.atoms)) for strategy, run in runs
    )


class _Dealt:
    """A step whose sequences are dealt to the strategies of tours, each group once."""

    def __init__(self, mixed: Mixed, step: Step) -> None:
        self._mixed, self._step = mixed, step
        self._known: dict[Group, int] = {}

    def time_ns(self, tour: Tour) -> int:
        """Time of the step with the tour's groups; a group without a sequence is left out."""
        held = [group for group in tour.groups if any(self._step[k] for k in group.atoms)]
        joined, strategies = Tour(tour.anchor, _joined(held)), self._mixed.strategies
        visits_ns = sum(strategies[group.strategy].visit_ns for group in joined.groups)
        switches_ns = sum(hop.time_ns or 0 for hop in hops(self._mixed.switching, joined))
        rows_ns = sum(map(self._group_ns, held))
        return rows_ns + visits_ns + switches_ns + strategies[tour.anchor].anchor_ns

    def _group_ns(self, group: Group) -> int:
        if group not in self._known:
            self._known[group] = self._dispatched_ns(group)
        return self._known[group]

    def _dispatched_ns(self, group: Group) -> int:
        mixed, strategy = self._mixed, self._mixed.strategies[group.strategy]
        if isinstance(strategy, Measured):
            times = (_measured_ns(strategy, mixed.atoms, k, self._step) for k in group.atoms)
            return sum(time or 0 for time in times)
        lengths = [length for k in group.atoms for length in self._step[k]]
        if mixed.rows == "padded":
            lengths = [mixed.atoms[k].tokens for k in group.atoms for _ in self._step[k]]
        return deal(strategy, lengths, mixed.rows, GAP).time_ns


def _measured_ns(strategy: Measured, atoms: Sequence[Atom], k: int, step: Step) -> int | None:
    """What was measured of an atom, for as many sequences as the step has of it."""
    measured = strategy.atoms_ns[k]
    return None if measured is None else ceil_div(measured * len(step[k]), atoms[k].count)
