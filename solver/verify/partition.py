"""Nodes dealt to lanes: by the most that lanes on them do, and by the weight of the lightest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import EllipsisType

import numpy as np

from formulations.costs.intervals import Array
from formulations.coverage import divided
from formulations.units import ceil_div
from solver.verify.path_lengths import NEVER

Nodes = tuple[int, ...]  #: nodes by group
Can = Callable[[Nodes, int], bool]

#: Weight of the fastest group where weights are like speeds, and ranges of weight of a light lane.
FINEST = 24
RANGES = 8
#: With more ways to have dealt some of the nodes, times lanes, these are not dealt out.
MOST_DEALT = 1 << 20


def deal(most: Mapping[Nodes, int], lanes: int, available: Nodes) -> list[Array]:
    """B_0, B_1, ..: most micro-batches by the nodes, of these, that so many lanes take.

    Arrays over the nodes of all groups but the last, of which lanes take what is left to make
    their stages; below 0 where they cannot take so many.
    """
    deals = [np.full([n + 1 for n in available[:-1]], -NEVER)]
    deals[0].flat[0] = 0
    for _ in range(lanes):
        sums = np.full_like(deals[0], -NEVER)
        for nodes, count in most.items():
            ends = (slice(c, None) for c in nodes[:-1])
            after: tuple[slice | EllipsisType, ...] = (*ends, ...)  # a view, of one group too
            before = tuple(slice(n + 1 - c) for c, n in zip(nodes, available[:-1], strict=False))
            np.maximum(sums[after], deals[-1][before] + count, out=sums[after])
        deals.append(sums)
    return deals


def best_deal(most: Mapping[Nodes, int], lanes: int, available: Nodes) -> list[Nodes]:
    """The nodes of every lane in a dealing of all nodes with the largest sum; none without one."""
    sums, taken, chosen = deal(most, lanes, available), available[:-1], list[Nodes]()
    if sums[-1][taken] < 0:
        return chosen
    for after, before in zip(reversed(sums[1:]), reversed(sums[:-1]), strict=True):
        for nodes, count in most.items():
            rest = tuple(n - c for n, c in zip(taken, nodes, strict=False))
            if min(rest, default=0) >= 0 and 0 <= after[taken] == before[rest] + count:
                chosen.append(nodes)
                taken = rest
                break
    return chosen


@dataclass(frozen=True)
class Dealing:
    """All places by group for a number of lanes of pp stages that do `total` micro-batches.

    fewest, largest: what a lane does at least, and at most; the same if shares are even. work: of
    the whole chain for a micro-batch on every group, ns.
    """

    places: Nodes
    number: int
    pp: int
    total: int
    fewest: int
    largest: int
    even: bool
    work: list[int]

    @cached_property
    def kinds(self) -> list[Nodes]:
        """All nodes that a lane may have."""
        return list(divided(self.pp, self.places))

    @property
    def few(self) -> bool:
        """Whether nodes can be dealt out in few enough ways."""
        return self.number * prod(n + 1 for n in self.places[:-1]) <= MOST_DEALT

    def _speed(self, nodes: Nodes) -> float:
        return sum(n / self.work[j] for j, n in enumerate(nodes))

    def most_by_nodes(self, can: Can, upper: Mapping[Nodes, int]) -> dict[Nodes, int] | None:
        """Most micro-batches of a lane with these nodes; None if no deal of lanes does all.

        can: whether a lane with these nodes does so much. upper: no lane with some does more.
        By halving, from the share of all that is due by speed: where no lane does its share, this
        is soon settled. Else first of the lanes in the best deal.
        """
        per_speed = self.total / self._speed(self.places)
        low = dict.fromkeys(self.kinds, 0)
        high = {nodes: upper.get(nodes, self.largest) for nodes in self.kinds}
        tests = {nodes: int(per_speed * self._speed(nodes)) for nodes in self.kinds}
        while True:
            for nodes, middle in tests.items():
                asked = min(max(middle, 1), high[nodes])
                if asked and can(nodes, asked):
                    low[nodes] = asked
                else:
                    high[nodes] = max(0, asked - 1)
            possible = {nodes: most for nodes, most in high.items() if most}
            dealt = best_deal(possible, self.number, self.places)
            if not dealt or sum(high[nodes] for nodes in dealt) < self.total:
                return None
            loose = [nodes for nodes in high if low[nodes] < high[nodes]]
            if not loose:
                return high
            first = [nodes for nodes in loose if nodes in dealt] or loose
            tests = {nodes: (low[nodes] + high[nodes] + 1) // 2 for nodes in first}

    @cached_property
    def weights(self) -> Nodes | None:
        """Weights of groups for the light lane: like their speeds, or of the fastest alone.

        The latter where shares are even. None with one group, which has no lighter lanes.
        """
        used = [j for j, n in enumerate(self.places) if n]
        if len(used) == 1:
            return None
        fastest = min(used, key=lambda j: self.work[j])
        if self.even:
            return tuple(int(j == fastest) for j in range(len(self.places)))
        return tuple(FINEST * self.work[fastest] // work for work in self.work)

    def ranges(self, weights: Nodes) -> list[tuple[int, int, int]]:
        """Weights of the light lane, from and to, and its micro-batches at least."""
        total = sum(w * n for w, n in zip(weights, self.places, strict=True))
        if self.even or self.number == 1:
            return [(0, total // self.number, self.fewest if self.even else self.total)]
        used = [w for w, n in zip(weights, self.places, strict=True) if n]
        low, high = min(used) * self.pp, max(used) * self.pp
        width = max(1, ceil_div(high - low + 1, RANGES))
        return [
            (a, min(a + width - 1, high), max(1, ceil_div(self.total * a, max(1, total))))
            for a in range(low, high + 1, width)
        ]
