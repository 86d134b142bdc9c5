"""The ways of one replica over kinds of nodes, stage by stage, as an automaton.

A state is the kind of the last stage and a tally, what is added up of the stages so far: weights
and counted stages of a light replica, places of a lane that are left. One way is a word of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

Tally = tuple[int, ...]
Way = tuple[int, int]  #: kind, rank


class Tallying(Protocol):
    """Of ways to run the first stages, what is added up of them."""

    @property
    def start(self) -> Tally:
        """Of no stages."""

    def after(self, tally: Tally, way: Way, left: int) -> Tally | None:
        """With one stage more, and `left` to come; None if no replica that is meant begins so."""


@dataclass(frozen=True)
class Weighed:
    """Weights of the kinds, and the most that the light replica weighs.

    most_of: if it is counted, how many stages may be run by the kinds up to a rank alone, by rank.
    """

    weights: tuple[int, ...]
    most: int
    most_of: tuple[int, ...] = ()

    def coarser(self, unit: int) -> "Weighed":
        """In larger units."""
        weights = tuple(weight // unit for weight in self.weights)
        return replace(self, weights=weights, most=self.most // unit)

    def counted(self, most_of: Sequence[int]) -> "Weighed":
        """With stages counted."""
        return replace(self, most_of=tuple(most_of))

    @cached_property
    def least(self) -> int:
        """Weight of the lightest kind."""
        return min(self.weights)

    @property
    def start(self) -> Tally:
        """No weight, no stages of any rank."""
        return (0, *(0 for _ in self.most_of))

    def after(self, tally: Tally, way: Way, left: int) -> Tally | None:
        """Weight, and stages up to every rank; None if it is too heavy, or has too many."""
        kind, rank = way
        weight = tally[0] + self.weights[kind]
        if weight > self.most - self.least * left:
            return None
        counts = [n + (rank <= r) for r, n in enumerate(tally[1:])]
        if any(n > most for n, most in zip(counts, self.most_of, strict=True)):
            return None
        return (weight, *counts)


@dataclass(frozen=True)
class Places:
    """Replicas with exactly these numbers of stages on the kinds: the tally is what is left."""

    start: Tally

    def after(self, tally: Tally, way: Way, left: int) -> Tally | None:
        """One place of the kind less; None if there is none."""
        kind, _ = way
        return (*tally[:kind], tally[kind] - 1, *tally[kind + 1 :]) if tally[kind] else None


class Step(NamedTuple):
    """One stage: states before and after, kinds before and now, rank of what may run there."""

    source: int
    target: int
    before: int
    now: int
    rank: int


def steps(
    ways: Sequence[Mapping[Way, int]], tallying: Tallying, most: int | None = None
) -> list[list[Step]] | None:
    """The steps of every stage, in which it goes one of its ways; None if they have `most` edges.

    ways: per stage the edges of every way.
    """
    states: dict[tuple[int, Tally], int] = {(0, tallying.start): 0}
    stages, edges = [], 0
    for k, own in enumerate(ways):
        found: dict[tuple[int, Tally], int] = {}
        taken = []
        for (before, tally), index in states.items():
            for way, size in own.items():
                whole = tallying.after(tally, way, len(ways) - 1 - k)
                if whole is not None:
                    target = found.setdefault((way[0], whole), len(found))
                    taken.append(Step(index, target, before, *way))
                    edges += size
            if most is not None and edges >= most:
                return None
        stages.append(taken)
        states = found
    return stages
