"""Nodes dealt to lanes: by the most that lanes on them do, and by the weight of the lightest."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.units import ceil_div
from solver.verify.families import NEVER

Array = NDArray[np.int64]

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
    found = [np.full([n + 1 for n in available[:-1]], -NEVER)]
    found[0].flat[0] = 0
    for _ in range(lanes):
        sums = np.full_like(found[0], -NEVER)
        for nodes, own in most.items():
            after = tuple(slice(c, None) for c in nodes[:-1])
            before = tuple(slice(n + 1 - c) for c, n in zip(nodes, available[:-1], strict=False))
            np.maximum(sums[after], found[-1][before] + own, out=sums[after])
        found.append(sums)
    return found


def best_deal(most: Mapping[Nodes, int], lanes: int, available: Nodes) -> list[Nodes]:
    """The nodes of every lane in a dealing of all nodes with the largest sum; none without one."""
    sums, taken, chosen = deal(most, lanes, available), available[:-1], list[Nodes]()
    for known, before in zip(reversed(sums[1:]), reversed(sums[:-1]), strict=True):
        for nodes, own in most.items():
            rest = tuple(n - c for n, c in zip(taken, nodes, strict=False))
            if min(rest, default=0) >= 0 and 0 <= known[taken] == before[rest] + own:
                chosen.append(nodes)
                taken = rest
                break
    return chosen


def lane_nodes(left: int, available: Nodes) -> Iterator[Nodes]:
    """All choices of `left` nodes."""
    if not available:
        yield from [()] if left == 0 else []
        return
    for count in range(min(left, available[0]) + 1):
        yield from ((count, *rest) for rest in lane_nodes(left - count, available[1:]))


@dataclass(frozen=True)
class Dealing:
    """All places by group for a number of lanes of pp stages that do `total` micro-batches.

    largest: no lane does more. work: of the whole chain for a micro-batch on every group, ns.
    """

    places: Nodes
    number: int
    pp: int
    total: int
    largest: int
    work: list[int]

    @cached_property
    def kinds(self) -> list[Nodes]:
        """All nodes that a lane may have."""
        return list(lane_nodes(self.pp, self.places))

    @property
    def few(self) -> bool:
        """Whether nodes can be dealt out in few enough ways."""
        return self.number * prod(n + 1 for n in self.places[:-1]) <= MOST_DEALT

    def most_by_nodes(self, can: Can, known: Mapping[Nodes, int]) -> dict[Nodes, int] | None:
        """Most micro-batches of a lane with these nodes; None if no deal of lanes does all.

        can: whether a lane with these nodes does so much. known: no lane with some does more.
        By halving, from the share of all that is due by speed: where no lane does its share, this
        is soon settled. Else first of the lanes in the best deal.
        """
        whole = sum(n / self.work[j] for j, n in enumerate(self.places))
        low = dict.fromkeys(self.kinds, 0)
        high = {nodes: known.get(nodes, self.largest) for nodes in self.kinds}
        tests = {
            nodes: int(self.total * sum(n / self.work[j] for j, n in enumerate(nodes)) / whole)
            for nodes in self.kinds
        }
        while True:
            for nodes, middle in tests.items():
                at = min(max(middle, 1), high[nodes])
                if at and can(nodes, at):
                    low[nodes] = at
                else:
                    high[nodes] = max(0, at - 1)
            some = {nodes: own for nodes, own in high.items() if own}
            dealt = best_deal(some, self.number, self.places)
            if not dealt or sum(high[nodes] for nodes in dealt) < self.total:
                return None
            loose = [nodes for nodes in high if low[nodes] < high[nodes]]
            if not loose:
                return high
            first = [nodes for nodes in loose if nodes in dealt] or loose
            tests = {nodes: (low[nodes] + high[nodes] + 1) // 2 for nodes in first}


@dataclass(frozen=True)
class LightLane:
    """Weights of groups, and of the lane that is light by them; least: micro-batches if even."""

    dealing: Dealing
    nodes_used: Nodes
    least: int | None

    @property
    def weightings(self) -> list[Nodes]:
        """Weights to try: of the fastest group alone, of more and more, and like the speeds."""
        used = [j for j, n in enumerate(self.nodes_used) if n]
        if len(used) == 1:
            return []
        order = sorted(used, key=lambda j: self.dealing.work[j])
        rank = [order.index(j) if j in used else len(used) for j in range(len(self.dealing.work))]
        least = min(self.dealing.work[j] for j in used)
        found = [
            [int(one == 0) for one in rank],
            [len(used) - one if one < len(used) - 1 else 0 for one in rank],
            [FINEST * least // one for one in self.dealing.work],
        ]
        if self.least is None:
            found.reverse()
        return list(dict.fromkeys(map(tuple, found)))

    def ranges(self, weights: Nodes) -> list[tuple[int, int, int]]:
        """Weights of the light lane, from and to, and its micro-batches at least."""
        nodes = self.dealing.places
        whole = sum(w * n for w, n in zip(weights, nodes, strict=True))
        if self.least is not None or self.dealing.number == 1:
            return [
                (
                    0,
                    whole // self.dealing.number,
                    self.dealing.total if self.least is None else self.least,
                )
            ]
        own = [w for w, n in zip(weights, nodes, strict=True) if n]
        low, high = min(own) * self.dealing.pp, max(own) * self.dealing.pp
        width = max(1, ceil_div(high - low + 1, RANGES))
        return [
            (a, min(a + width - 1, high), max(1, ceil_div(self.dealing.total * a, max(1, whole))))
            for a in range(low, high + 1, width)
        ]
