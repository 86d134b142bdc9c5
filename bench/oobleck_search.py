"""Templates of least "sum of stage times plus multiples of the slowest", of all sizes at once.

The objective, with T the slowest stage time t_k, k the last stage that takes T, and weights >= 0:

    sum over i < k of (p t_i + P T)  +  (c + C) T  +  sum over i > k of (s t_i + S T).

For a given T it is additive, so dynamic programming over layers and GPU positions is exact: every
stage is before the slowest one (t <= T), the slowest one (t = T) or after it (t < T).

Bounds for a range. Let every stage take t <= T1, the slowest one t >= T0, and charge P T0, C T0,
S T0 for the multiples: each template with T in [T0, T1] is allowed and costs no more than it does,
so the optimum of this relaxation is a lower bound for all of them, of every size at once; and for
T0 = T1 it is exact. Ranges start as a geometric grid over all stage times there are. A range whose
bound is below the best template of some size is halved, and the template that attains the bound,
judged by its true T, may be a new best one. Ranges of one value are exact, so that in the end every
T is excluded for every size: what is left is optimal. No bound is taken for granted: a template is
feasible, so its value is never below that of the relaxation it solves.

Tables of all sizes are worked out together, node by node, see `oobleck_tables`: O(ranges R N L^2)
for N GPUs of one node group, and R numbers of micro-batches that stages may hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from operator import mul

import numpy as np

from bench.oobleck_tables import CountedTables, StageRoom, Weights
from formulations.fleet import Template
from solver.graph.pipelines import Counts
from solver.graph.places import Places
from solver.graph.problem import INFINITY, Array, Mask

#: Ranges to start with, and ranges worked out together.
GRID = 64
BATCH = 16


@dataclass(frozen=True)
class Range:
    """Values number `first` to `last` of the slowest stage time, and bounds known for it."""

    first: int
    last: int
    bounds: Array | None  #: [sizes]; None before the first look


class BottleneckSearch:
    """Templates for every key of `finals`: the node counts that count for it.

    Every stage has room for what it holds of so many micro-batches.
    """

    def __init__(
        self,
        places: Places,
        weights: Weights,
        finals: Mapping[int, Sequence[Counts]],
        micro_batches: int,
    ) -> None:
        self.weights = weights
        self.keys, self.finals = list(finals), [list(own) for own in finals.values()]
        reached = {v for own in self.finals for v in own}
        most = max(sum(map(mul, v, places.node_gpus)) for v in reached)
        self.room = StageRoom(places, most, micro_batches)
        self.values = self.room.times
        self.best: list[Template | None] = [None] * len(self.keys)
        self.best_value = np.full(len(self.keys), INFINITY)
        corner = [max(axis) for axis in zip(*reached, strict=True)]
        self.vectors = [
            v
            for v in product(*(range(most + 1) for most in corner))
            if any(all(map(int.__le__, v, final)) for final in reached)
        ]

    def run(self) -> dict[int, Template]:
        """An optimal template of every key that has one."""
        ranges = self._grid()
        while ranges:
            following = list[Range]()
            for i in range(0, len(ranges), BATCH):
                part = [one for one in ranges[i : i + BATCH] if self._open(one.bounds).any()]
                if part:
                    following += self._look(part)
            ranges = following
        return {k: one for k, one in zip(self.keys, self.best, strict=True) if one is not None}

    def _grid(self) -> list[Range]:
        if not len(self.values):
            return []
        edges = np.geomspace(self.values[0], self.values[-1] + 1, GRID + 1)
        cuts = np.unique([0, *np.searchsorted(self.values, edges[1:-1]), len(self.values)])
        return [Range(int(first), int(end) - 1, None) for first, end in pairwise(cuts)]

    def _open(self, bounds: Array | None) -> Mask:
        """[keys] whether a template of the range may still be better."""
        if bounds is None:
            return np.ones(len(self.keys), dtype=bool)
        return bounds < self.best_value

    def _look(self, part: Sequence[Range]) -> list[Range]:
        """Bounds of some ranges; the halves of those that stay open."""
        low = self.values[[one.first for one in part]]
        high = self.values[[one.last for one in part]]
        table = CountedTables(self.room, self.weights, self.vectors, low, high)
        ends = [[table.bounds(own, b) for own in self.finals] for b in range(len(part))]
        bounds = np.array([[value for value, _ in own] for own in ends])
        for key, own in enumerate(bounds.T):
            for b in np.argsort(own, kind="stable").tolist():
                if own[b] < self.best_value[key]:
                    self._judge(key, table.template(ends[b][key][1], b))
        halves = list[Range]()
        for one, own in zip(part, bounds, strict=True):
            if one.last > one.first and self._open(own).any():
                middle = (one.first + one.last) // 2
                halves += [Range(one.first, middle, own), Range(middle + 1, one.last, own)]
        return halves

    def _judge(self, key: int, found: tuple[Template, list[int]]) -> None:
        value = self.weights.value(found[1])
        if value < self.best_value[key]:
            self.best[key], self.best_value[key] = found[0], value
