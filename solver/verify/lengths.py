"""How long the paths of `families` are for the ways to run one device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.verify.families import BACK, NEVER, Member, Visits
from solver.verify.ways import Ways

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Costs:
    """The choices of one device for one lane, ns [M].

    times: forward of every chunk, then backward, weight gradients, message from the stage before or
    to it; if sends are blocking the least that lengthen forwards, and backwards. tail: of the step.
    """

    times: Sequence[Array]
    tail: Array

    def counted(self, counts: Array) -> Array:
        """[C, M] ns of so many of all these times, [C, K] or [C, K, M]."""
        known = counts[:, : len(self.times)]
        return np.asarray(np.einsum("ck...,k...->c...", known, self.times))

    def visited(self, visits: Visits) -> Array:
        """[M] ns of these visits."""
        forward, backward, sends = zip(*visits, strict=True)
        pairs = zip((*forward, *backward, *[0] * len(visits), *sends), self.times, strict=False)
        return sum((n * ns if n > 1 else ns for n, ns in pairs if n), 0 * self.tail)


class LaneWays:
    """Ways of one lane through what is left.

    once: [M] ns of the first device, what follows all that comes back there.
    """

    def __init__(self, costs: list[Costs], ways: Ways, once: Array) -> None:
        self.costs, self.ways, self.once = costs, ways, once
        self._passed: dict[Visits, list[Array]] = {}
        self._before: dict[tuple[Visits, bool], list[Array]] = {}
        self._after: dict[Visits, list[Array]] = {}

    def passed(self, visits: Visits) -> list[Array]:
        """Per device what every choice adds to ways with these visits."""
        if visits not in self._passed:
            self._passed[visits] = [one.visited(visits) for one in self.costs]
        return self._passed[visits]

    def returned(self, visits: Visits) -> list[Array]:
        """The same of ways that come back to the first device, with all that follows."""
        first, *others = self.passed(visits)
        return [first + self.once, *others]

    def before(self, visits: Visits, back: bool) -> list[Array]:
        """Per device the shortest ways to every node before it."""
        if (visits, back) not in self._before:
            costs = self.returned(visits) if back else self.passed(visits)
            self._before[visits, back] = self.ways.before(costs)
        return self._before[visits, back]

    def after(self, visits: Visits) -> list[Array]:
        """Per device the shortest ways from every node after it."""
        if visits not in self._after:
            self._after[visits] = self.ways.after(self.passed(visits))
        return self._after[visits]


class StageLengths:
    """Choices of one device with their surroundings, ns [M]; see the head of this file."""

    def __init__(self, lane: LaneWays, k: int, limit: int) -> None:
        self.lane, self.k, self.limit = lane, k, limit
        self.own, (self.source, self.target) = lane.costs[k], lane.ways.nodes[k]
        self._before: dict[tuple[Visits, bool], Array] = {}
        self._after: dict[Visits, Array] = {}

    def before(self, visits: Visits, back: bool) -> Array:
        """[M] ways through the devices before."""
        if (visits, back) not in self._before:
            self._before[visits, back] = self.lane.before(visits, back)[self.k][self.source]
        return self._before[visits, back]

    def after(self, visits: Visits) -> Array:
        """[M] ways through the devices after."""
        if visits not in self._after:
            self._after[visits] = self.lane.after(visits)[self.k][self.target]
        return self._after[visits]

    @property
    def alone(self) -> Array:
        """[M] what fits on the device alone; 0 if nothing does."""
        forward, backward, weight, *_ = self.own.times
        work = forward + backward + weight
        return np.asarray(np.maximum(self.limit // np.maximum(work, 1), 0))

    def within(self, members: Sequence[Member]) -> Mask:
        """[M] whether no member is longer than the limit."""
        fits: Mask = np.all(self._lengths(members) <= self.limit, axis=0)
        return fits

    def added(self, latency: Array, members: Sequence[Member]) -> Array:
        """[M] what members that come back from all stages after their own add at least to latency.

        latency: [M] of this stage alone.
        """
        is_last = self.k + 1 == len(self.lane.costs)
        alone = self.before(BACK, True) + latency + self.after(BACK)
        through = [one for one in members if one.back and (one.beyond or is_last)]
        longest: Array = np.max([alone, *self._lengths(through)], axis=0)
        return longest - alone

    def _lengths(self, members: Sequence[Member]) -> Array:
        """[C, M] of members."""
        lengths = self.own.counted(np.array([one.own for one in members]))
        for own, one in zip(lengths, members, strict=True):
            after = self.after(one.after)
            own += self.before(one.before, one.back)
            own += np.where(after < NEVER, one.beyond * after, NEVER)
            if not (one.back and self.k):
                own += self.own.tail
        return lengths
