"""Which replicas a graph of one replica has: what its states add up, stage by stage."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

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
