"""What one shape allows, whatever the node order: prefix sums over layers and farthest ends."""

from functools import cached_property

import numpy as np

from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.schedules import SCHEDULES
from solver.heuristics.stages import least_ends
from solver.layered.placements import Columns
from solver.layered.problem import Intervals


class SplitSpace:
    """Prefix sums [n, J] of times and farthest ends of stages, shared by all orders of a shape.

    n = L + 1 layer boundaries, J node groups.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables, self.stages = tables, StageCosts(tables)
        self.forward, self.backward = self.stages.forward, self.stages.backward
        self.work = self.forward + self.backward
        self.optimizer = self.stages.optimizer
        self.least_ends = np.array(least_ends(tables))

    @cached_property
    def intervals(self) -> Intervals:
        """The same as sums over intervals of layers."""
        return Intervals(self.tables, self.stages)

    @cached_property
    def passes(self) -> tuple[Array, ...]:
        """[n, J] times of each kind of operation."""
        if not SCHEDULES[self.tables.shape.schedule].splits_backward:
            return self.forward, self.backward
        weight = self.stages.weight
        return self.forward, self.backward - weight, weight

    @cached_property
    def columns(self) -> Columns:
        """Times by group and place."""
        return Columns(self.intervals)

    def stage_times(self, share: int, groups: Array, start: Array, end: Array) -> list[Array]:
        """Times of each kind of operation of stages [S, ..] on these groups, by first axis.

        Of replicas with so many micro-batches.
        """
        stages = self.stages
        if not stages.has_choice or stages.shares_memory:
            least = [table[end, groups] - table[start, groups] for table in self.passes]
            least[1] = least[1] + self._chunks_extra(share, groups, start, end)
            return least
        first = [self.columns.first(k, share) for k in range(len(start))]
        columns = groups + np.array(first).reshape(-1, *(1,) * (groups.ndim - 1))
        tables = [table for table in self.columns.times() if table is not None]
        return [table[columns, start, end] for table in tables]

    def _chunks_extra(self, share: int, groups: Array, start: Array, end: Array) -> Array | int:
        """[S, C, N] ns that stages [S, C, N] beside others on a device recompute for."""
        stages = self.intervals.stages
        if not stages.has_choice:
            return 0
        splits = np.concatenate([start[:, 0], end[-1:, 0]]).T
        return stages.chunks.extra(groups[: self.tables.shape.pp, :, 0], share, splits)

    def farthest_ends(self, group: int, stage: int, share: int) -> Array:
        """[n] last end with which a stage from each layer fits a GPU of the group.

        Of a replica with so many micro-batches. The start itself where not one layer fits: memory
        grows with the layers, so every end up to the last fits.
        """
        fits = self.intervals.stages.extra(group, stage, share) < NEVER
        ends = np.arange(len(fits))
        farthest: Array = ends + (fits & (ends[None, :] > ends[:, None])).sum(axis=1)
        return farthest
