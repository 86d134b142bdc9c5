"""Layered shortest paths through the choices of devices; how long paths of `families` are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.costs.intervals import Array, Mask
from solver.verify.families import BACK, NEVER, Member, Visits
from solver.verify.orders import Step


@dataclass(frozen=True)
class Choices:
    """M ways to run one device: by a step of the graph [M], layers [first, last) [M].

    row: [M] what of the device's layers is in which chunk, as a row of `Stages.sizes`. With several
    chunks `first` counts the layers of all chunks of the devices before.
    """

    step: Array
    first: Array
    last: Array
    row: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Choices":
        """Some of them."""
        return Choices(self.step[keep], self.first[keep], self.last[keep], self.row[keep])

    @staticmethod
    def joined(cases: Sequence["Choices"]) -> "Choices":
        """Those of any of these, once each."""
        rows = [np.stack([case.step, case.first, case.last, case.row]) for case in cases]
        return Choices(*np.unique(np.concatenate(rows, axis=1), axis=1))


Remaining = list[Choices]  #: by device


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
        timed = counts[:, : len(self.times)]
        return np.asarray(np.einsum("ck...,k...->c...", timed, self.times))

    def visited(self, visits: Visits) -> Array:
        """[M] ns of these visits."""
        forward, backward, sends = zip(*visits, strict=True)
        pairs = zip((*forward, *backward, *[0] * len(visits), *sends), self.times, strict=False)
        return sum((n * ns if n > 1 else ns for n, ns in pairs if n), 0 * self.tail)


class LaneWays:
    """Shortest ways of one lane through the choices that remain, [M] of every device.

    nodes: per device those before and after every choice, a state and a layer as one number; size:
    layers of a state. once: [M] ns of the first device, what follows all that comes back there.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        remaining: Remaining,
        costs: list[Costs],
        once: Array,
        size: int,
    ) -> None:
        self.costs, self.once, self.size = costs, once, size
        self.nodes = [
            (step.source[c.step] * size + c.first, step.target[c.step] * size + c.last)
            for step, c in zip(steps, remaining, strict=True)
        ]
        self._num_nodes = [size, *(step.num_targets * size for step in steps)]
        self.passed = lru_cache(maxsize=None)(self._passed)
        # shortest ways from the start to every choice, and from every choice to the end, without it
        self.before = lru_cache(maxsize=None)(
            lambda visits, back: self.ways_before(self.passed(visits, back))
        )
        self.after = lru_cache(maxsize=None)(
            lambda visits: self.ways_after(self.passed(visits, False))
        )

    def _passed(self, visits: Visits, back: bool) -> list[Array]:
        """What every choice adds to ways with these visits; back: that return to the first."""
        first, *others = (device.visited(visits) for device in self.costs)
        return [first + self.once if back else first, *others]

    def ways_before(self, passed: list[Array]) -> list[Array]:
        """From the start, where the choices take so long."""
        reached, ways = np.full(self.size, NEVER), list[Array]()
        reached[0] = 0
        arcs = zip(self.nodes, passed, self._num_nodes[1:], strict=True)
        for (source, target), cost, num_nodes in arcs:
            ways.append(reached[source])
            reached = np.full(num_nodes, NEVER)
            np.minimum.at(reached, target, ways[-1] + cost)
        return ways

    def ways_after(self, passed: list[Array]) -> list[Array]:
        """To the end, where the choices take so long."""
        reached, ways = np.zeros(self._num_nodes[-1], dtype=np.int64), list[Array]()
        arcs = zip(self.nodes, passed, self._num_nodes[:-1], strict=True)
        for (source, target), cost, num_nodes in reversed(list(arcs)):
            ways.append(reached[target])
            reached = np.full(num_nodes, NEVER)
            np.minimum.at(reached, source, ways[-1] + cost)
        return ways[::-1]

    def busiest(self, k: int, limit: int) -> Array:
        """[M] micro-batches for which device k is busy within the limit; 0 if for none."""
        forward, backward, weight, *_ = self.costs[k].times
        work = forward + backward + weight
        return np.asarray(np.maximum(limit // np.maximum(work, 1), 0))

    def within(self, k: int, members: Sequence[Member], limit: int) -> Mask:
        """[M] whether no member of device k is longer than the limit, with its surroundings.

        See the head of `refutation`.
        """
        return np.asarray(np.all(self.lengths(k, members) <= limit, axis=0))

    def added(self, k: int, members: Sequence[Member]) -> Array:
        """[M] what paths that come back from all devices after k add to the latency, at least."""
        is_last = k + 1 == len(self.costs)
        through = [member for member in members if member.back and (member.beyond or is_last)]
        alone = self.before(BACK, True)[k] + self.passed(BACK, True)[k] + self.after(BACK)[k]
        longest = [alone, *self.lengths(k, through)] if through else [alone]
        return np.asarray(np.max(longest, axis=0) - alone)

    def lengths(self, k: int, members: Sequence[Member]) -> Array:
        """[C, M] ns of members of device k, with its surroundings."""
        device = self.costs[k]
        lengths = device.counted(np.array([member.times for member in members]))
        for length, member in zip(lengths, members, strict=True):
            after = self.after(member.after)[k]
            length += self.before(member.before, member.back)[k]
            length += np.where(after < NEVER, member.beyond * after, NEVER)
            if not (member.back and k):
                length += device.tail
        return lengths
