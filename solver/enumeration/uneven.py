"""Bounds of all plans of a shape whose replicas may have unlike shares: lane by lane.

Take a plan below a cutoff, in lanes of q replicas (see `lane`). A lane with c_j places on kind j
has a largest share s; the shares of its replicas add up to q s at most, those of all lanes to M. So
the s of all lanes add up to M / q or more, and the c to the places of the shape.

Shares. S(c) bounds the share of any lane with counts c, whatever its layers and order, see `shares`
and `Lane.most`: the plan has no more than the best dealing of places gives, see `dealing`. If that
is below M / q there is no such plan.
Needed. A lane with counts c has at least M / q less the most that the others can have with the
places left. What only leaves it less is nothing that it uses.
Shared split. All lanes have the same layers on a stage. If the shares that they can have with these
layers there, dealt best, are below M / q, the stage does not have these layers.
Each step makes the others stronger, so they are repeated until nothing changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from formulations.costs.placement import Placer
from formulations.units import ceil_div
from solver.enumeration.dealing import needed, together
from solver.enumeration.lane import Counts, Lane, Stages
from solver.enumeration.problem import Array, Intervals, Mask
from solver.enumeration.shares import SharedOut, shared_out

#: Additions with which dealings of single runs of layers are looked at.
MOST_ADDITIONS = 1 << 28
#: With more edges of all lanes, about, nothing is found out.
MOST_EDGES = 50_000_000
#: Halvings of the interval in which a bound is searched.
HALVINGS = 8


@dataclass(frozen=True)
class Left:
    """What plans below a cutoff may use; by counts of a lane, least and largest share."""

    stages: Stages
    needed: dict[Counts, int]
    largest: dict[Counts, int]


class Uneven:
    """The plans of one shape."""

    def __init__(self, intervals: Intervals, placer: Placer) -> None:
        self.tables, self.placer = intervals.tables, placer
        self.lane = Lane(intervals, placer)
        self.total = ceil_div(self.tables.num_micro_batches, self.lane.width)
        self.most = min(self.total, self.tables.num_micro_batches - self.tables.shape.dp + 1)
        self.possible = self.lane.num_edges <= MOST_EDGES

    @property
    def exact(self) -> bool:
        """Whether all that these bounds leave can be told apart, see `uneven_search`."""
        return self.possible and self.lane.exact

    def everything(self, cutoff: int) -> Left:
        """All plans below the cutoff, as far as the work of a lane tells."""
        largest = {c: min(self.most, self.lane.most(c, cutoff)) for c in self.lane.counts()}
        least = needed(largest, self.lane.number, self.lane.places, self.total)
        return Left(self.lane.everything(), least, {c: largest[c] for c in least})

    def thinned(self, left: Left, cutoff: int) -> Left | None:
        """What plans below the cutoff may use of this; None if there is none."""
        before = None
        while before != (size := _size(left)):
            before = size
            runs = self._runs(left, cutoff)
            largest = {c: max(int(run.max()) for run in own) for c, own in runs.items()}
            least = needed(largest, self.lane.number, self.lane.places, self.total)
            layers = tuple(
                self._shared(mask, {c: own[k] for c, own in runs.items() if c in least})
                for k, mask in enumerate(left.stages.layers)
            )
            if not all(mask.any() for mask in layers):
                return None
            largest = {c: largest[c] for c in least}
            left = Left(replace(left.stages, layers=layers), least, largest)
        return left

    def _runs(self, left: Left, cutoff: int) -> dict[Counts, list[Array]]:
        """By counts, per stage [n, n] largest share of a lane with these layers there.

        None at all as soon as it is clear that the lanes cannot have all micro-batches.
        """
        found: dict[Counts, list[Array]] = {}
        largest = dict(left.largest)
        for counts in self._from_the_middle(left):
            problem = self.lane.problem(counts, left.stages, left.needed[counts])
            shared = shared_out(problem, self.lane.room, cutoff, left.needed[counts])
            largest[counts] = min(self.most, shared.largest) if shared else 0
            if self.together(largest) < self.total:
                return {}
            if shared:
                found[counts] = self._by_run(shared)
        return found

    def _by_run(self, shared: SharedOut) -> list[Array]:
        """Per stage [n, n] largest share with these layers."""
        runs = []
        for edges, own in zip(shared.layers, shared.shares, strict=True):
            run = np.zeros_like(self.lane.forward[0])
            most = min(self.most, shared.largest)
            np.maximum.at(run, (edges.start, edges.end), np.minimum(own, most))
            runs.append(run)
        return runs

    def _from_the_middle(self, left: Left) -> list[Counts]:
        """Counts by how far they are from what a lane has on average."""
        mean = np.array(self.lane.places) / self.lane.number
        return sorted(left.needed, key=lambda counts: float(np.abs(np.array(counts) - mean).sum()))

    def together(self, shares: Mapping[Counts, int]) -> int:
        """Micro-batches of all lanes with these shares at most."""
        one = {counts: np.array([share]) for counts, share in shares.items()}
        return int(together(one, self.lane.number, self.lane.places)[0]) if one else 0

    def _shared(self, mask: Mask, runs: Mapping[Counts, Array]) -> Mask:
        """[n, n] layers with which the lanes can have all micro-batches."""
        left = np.zeros_like(mask)
        if not runs:
            return left
        start, end = np.nonzero(mask & np.any([run > 0 for run in runs.values()], axis=0))
        shares = {c: run[start, end] for c, run in runs.items()}
        number, places = self.lane.number, self.lane.places
        if not len(start):
            return left
        if number * len(shares) * prod(n + 1 for n in places[:-1]) * len(start) <= MOST_ADDITIONS:
            enough = together(shares, number, places) >= self.total
            start, end = start[enough], end[enough]
        left[start, end] = True
        return left

    def bound_ns(self, low: int, cutoff: int) -> int:
        """Lower bound of all plans, at least `low`, which is one; the cutoff if none is below."""
        if not self.possible:
            return low
        left = self.thinned(self.everything(cutoff), cutoff)
        high = cutoff
        for _ in range(HALVINGS):
            if left is None:
                return high
            middle = (low + high) // 2
            less = self.thinned(left, middle)
            low, high, left = (middle, high, left) if less is None else (low, middle, less)
        return low


def _size(left: Left) -> int:
    """Changes whenever less is left."""
    runs = sum(int(mask.sum()) for mask in left.stages.layers)
    return runs + sum(1 + most - left.needed[counts] for counts, most in left.largest.items())
