"""The ways of one replica over kinds of nodes, stage by stage, as an automaton.

A state is the kind of the last stage and a tally, what is added up of the stages so far: the weight
of a light replica, places of a lane that are left. One way is a word of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

Tally = tuple[int, ...]


class Tallying(Protocol):
    """Of ways to run the first stages, what is added up of them."""

    @property
    def start(self) -> Tally:
        """Of no stages."""

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """With one stage more, and `left` to come; None if no replica that is meant begins so."""


@dataclass(frozen=True)
class Weighed:
    """Weights of the kinds, and the most that the light replica weighs."""

    weights: tuple[int, ...]
    most: int

    def coarser(self, unit: int) -> "Weighed":
        """In larger units."""
        return Weighed(tuple(weight // unit for weight in self.weights), self.most // unit)

    @cached_property
    def least(self) -> int:
        """Weight of the lightest kind."""
        return min(self.weights)

    @property
    def start(self) -> Tally:
        """No weight."""
        return (0,)

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """Weight; None if it is too heavy."""
        weight = tally[0] + self.weights[kind]
        return (weight,) if weight <= self.most - self.least * left else None


@dataclass(frozen=True)
class Places:
    """Replicas with exactly these numbers of stages on the kinds: the tally is what is left."""

    start: Tally

    def after(self, tally: Tally, kind: int, left: int) -> Tally | None:
        """One place of the kind less; None if there is none."""
        return (*tally[:kind], tally[kind] - 1, *tally[kind + 1 :]) if tally[kind] else None


class Step(NamedTuple):
    """One stage: states before and after, kinds before and now."""

    source: int
    target: int
    before: int
    now: int


def steps(
    kinds: Sequence[Mapping[int, int]], tallying: Tallying, most: int | None = None
) -> list[list[Step]] | None:
    """The steps of every stage; None if they have `most` edges.

    kinds: per stage those that it may stand on, with the edges of each.
    """
    states: dict[tuple[int, Tally], int] = {(0, tallying.start): 0}
    stages, edges = [], 0
    for k, own in enumerate(kinds):
        found: dict[tuple[int, Tally], int] = {}
        taken = []
        for (before, tally), index in states.items():
            for kind, size in own.items():
                whole = tallying.after(tally, kind, len(kinds) - 1 - k)
                if whole is not None:
                    target = found.setdefault((kind, whole), len(found))
                    taken.append(Step(index, target, before, kind))
                    edges += size
            if most is not None and edges >= most:
                return None
        stages.append(taken)
        states = found
    return stages
