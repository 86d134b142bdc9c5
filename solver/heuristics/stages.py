"""Stage times, memory and allowed stages of one node order, for heuristics that move layers."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from formulations.costs.stage_costs import NEVER
from formulations.costs.tables import Array, CostTables
from solver.layered.problem import Intervals

#: Boundaries of a split: pp + 1 layer indices from 0 to the number of layers.
Split = tuple[int, ...]


def _before(values: Array) -> list[int]:
    """Sum of all values before each index, [L + 1]."""
    return list(accumulate(values.tolist(), initial=0))


def least_ends(tables: CostTables) -> list[int]:
    """Least end of a stage that starts at layer 0 .. L; L + 1 if too few blocks follow."""
    blocks = tables.blocks_before
    ends = np.searchsorted(blocks, blocks + tables.min_blocks)
    return [max(start + 1, int(end)) for start, end in enumerate(ends)]


class OrderStages:
    """Costs of layers [start, end) as stage k, over all its replicas.

    `group_of_slot`: [pp * dp] node group of every slot. `micro_batches`: one number per replica.
    """

    def __init__(
        self, intervals: Intervals, group_of_slot: Array, micro_batches: Sequence[int]
    ) -> None:
        self.intervals, self.tables = intervals, intervals.tables
        tables, shape = self.tables, self.tables.shape
        self.micro_batches = tuple(micro_batches)
        self.least_ends = least_ends(tables)
        self.groups = group_of_slot.reshape(shape.pp, shape.dp)
        self._work = [_before(times) for times in tables.work_ns.T]
        self._kinds = self._distinct()

    def _distinct(self) -> list[list[tuple[int, int]]]:
        """Distinct (node group, micro-batches) among the replicas of every stage."""
        counts, index = np.unique(np.array(self.micro_batches), return_inverse=True)
        stages, kinds = len(self.groups), len(self.tables.capacity_bytes)
        present = np.zeros((stages, kinds, len(counts)), dtype=bool)
        present[np.arange(stages)[:, None], self.groups, index] = True
        return [[(int(j), int(counts[i])) for j, i in np.argwhere(one)] for one in present]

    def time_ns(self, k: int, start: int, end: int) -> int:
        """Forward and backward of one micro-batch on the slowest replica."""
        return max(self._time_ns(k, j, m, start, end) for j, m in self._kinds[k])

    def _time_ns(self, k: int, j: int, m: int, start: int, end: int) -> int:
        extra = int(self.intervals.stages.extra(j, k, m)[start, end])
        return self._work[j][end] - self._work[j][start] + (extra if extra < NEVER else 0)

    def replica_times_ns(self, split: Split) -> Array:
        """[pp, dp] forward and backward of one micro-batch on every replica."""
        times = np.zeros_like(self.groups)
        shares = np.array(self.micro_batches)
        for k, stage in enumerate(pairwise(split)):
            for j, m in self._kinds[k]:
                alike = (self.groups[k] == j) & (shares == m)
                times[k, alike] = self._time_ns(k, j, m, *stage)
        return times

    def times_ns(self, split: Split) -> list[int]:
        """`time_ns` of every stage."""
        return [self.time_ns(k, *stage) for k, stage in enumerate(pairwise(split))]

    def fits_memory(self, k: int, start: int, end: int) -> bool:
        """Whether every GPU of the stage has room; if so, it has for fewer layers too."""
        extra = self.intervals.stages.extra
        return all(extra(j, k, m)[start, end] < NEVER for j, m in self._kinds[k])

    def allowed(self, k: int, start: int, end: int) -> bool:
        """Whether the stage has enough blocks, and memory on every GPU."""
        return end >= self.least_ends[start] and self.fits_memory(k, start, end)

    def fits(self, split: Split) -> bool:
        """Whether every stage of the split is allowed."""
        return all(self.allowed(k, *stage) for k, stage in enumerate(pairwise(split)))

    def ends(self, k: int, start: int) -> range:
        """All allowed ends of stage k if it starts at `start`."""
        candidates = range(self.least_ends[start], self.tables.num_layers + 1)
        room = bisect_left(candidates, True, key=lambda end: not self.fits_memory(k, start, end))
        return candidates[:room]

    def earliest_starts(self) -> list[int]:
        """Least start of each stage and, last, of none, [pp + 1]; above 0 for stage 0: none fits.

        No split that fits memory has an earlier boundary. Proof: memory grows with the layers, so
        stage k cannot start earlier than where it is full if it ends as early as it may.
        """
        starts = [self.tables.num_layers]
        for k in reversed(range(self.tables.shape.pp)):
            end = starts[-1]
            full = partial(self.fits_memory, k, end=end)
            starts.append(bisect_left(range(end), True, key=full))
        return starts[::-1]


def nearest_split(
    target: Split, ends: Callable[[int, int], range], earliest: Sequence[int]
) -> Split | None:
    """The split closest to `target`, boundary by boundary from the left; None iff there is none.

    `ends(k, start)`: all allowed ends of stage k. `earliest`: [pp + 1] no boundary of any split
    is below; it saves time. Depth first, every dead end (stage, start) visited once.
    """
    layers = target[-1]
    dead: set[tuple[int, int]] = set()

    def rest(k: int, start: int) -> Split | None:
        if k == len(target) - 1:
            return () if start == layers else None
        if (k, start) in dead:
            return None
        candidates = (end for end in ends(k, start) if end >= earliest[k + 1])
        for end in sorted(candidates, key=lambda end: (abs(end - target[k + 1]), end)):
            following = rest(k + 1, end)
            if following is not None:
                return (end, *following)
        dead.add((k, start))
        return None

    found = rest(0, 0)
    return found and (0, *found)
