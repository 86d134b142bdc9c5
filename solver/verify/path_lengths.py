"""Layered shortest paths through the choices of devices; how long paths of `families` are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.verify.families import BACK, NEVER, Member, Visits
from solver.verify.orders import Step

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Choices:
    """M ways to run one device: by a step of the graph [M], layers [first, last) [M].

    own: [M] what of the device's layers is in which chunk, as a row of `Stages.sizes`. With several
    chunks `first` counts the layers of all chunks of the devices before.
    """

    step: Array
    first: Array
    last: Array
    own: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Choices":
        """Some of them."""
        return Choices(self.step[keep], self.first[keep], self.last[keep], self.own[keep])

    @staticmethod
    def joined(parts: Sequence["Choices"]) -> "Choices":
        """Those of any of these, once each."""
        rows = [np.stack([part.step, part.first, part.last, part.own]) for part in parts]
        return Choices(*np.unique(np.concatenate(rows, axis=1), axis=1))


Left = list[Choices]


class Ways:
    """Ways through what is left; nodes are a state and a layer."""

    def __init__(self, steps: Sequence[Step], left: Left, size: int) -> None:
        self.steps, self.size = steps, size
        #: per stage the nodes [M] before and after every choice, as numbers
        self.nodes = [
            (step.source[c.step] * size + c.first, step.target[c.step] * size + c.last)
            for step, c in zip(steps, left, strict=True)
        ]

    def before(self, costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from the start to every node before each stage."""
        found = [np.full(self.size, NEVER)]
        found[0][0] = 0
        for step, (source, target), cost in zip(self.steps, self.nodes, costs, strict=True):
            best = np.full(step.num_targets * self.size, NEVER)
            np.minimum.at(best, target, found[-1][source] + cost)
            found.append(best)
        return found

    def after(self, costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from every node after each stage to the end."""
        found = [np.zeros(self.steps[-1].num_targets * self.size, dtype=np.int64)]
        for k in range(len(self.nodes) - 1, 0, -1):
            source, target = self.nodes[k]
            best = np.full(self.steps[k - 1].num_targets * self.size, NEVER)
            np.minimum.at(best, source, found[-1][target] + costs[k])
            found.append(best)
        return found[::-1]


@dataclass(frozen=True)
class Costs:
    """The choices of one device for one lane, ns [M].

    times: [K, M] forward of every chunk, then backward, weight gradients, message from or to the
    stage before; if sends are blocking the least that lengthen forwards, and backwards. tail: [M]
    what follows the last backward.
    """

    times: Array
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
