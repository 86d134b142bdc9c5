"""What one shape allows, whatever the node order: prefix sums over layers and farthest ends."""

from functools import cached_property

import numpy as np

from formulations.costs.tables import Array, CostTables
from formulations.schedules import SCHEDULES
from solver.heuristics.stages import least_ends
from solver.layered.problem import Intervals


def _before(values: Array) -> Array:
    """Sum of all values before each layer, [L + 1, ..]."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


class SplitSpace:
    """Prefix sums [n, J] of times and farthest ends of stages, shared by all orders of a shape.

    n = L + 1 layer boundaries, J node groups.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self.forward = _before(tables.forward_ns)
        self.backward = _before(tables.backward_ns)
        self.work = self.forward + self.backward
        self.optimizer = _before(tables.optimizer_ns)
        self.least_ends = np.array(least_ends(tables))
        self._static = _before(tables.memory.static_bytes)
        self._activation = _before(tables.memory.activation_bytes)
        self._put_off = _before(tables.memory.put_off_bytes)
        self._workspace = self._largest(tables.memory.workspace_bytes)
        self._known: dict[tuple[int, int, int], Array] = {}

    @cached_property
    def intervals(self) -> Intervals:
        """The same as sums over intervals of layers."""
        return Intervals(self.tables)

    @cached_property
    def passes(self) -> tuple[Array, ...]:
        """[n, J] times of each kind of operation."""
        if not SCHEDULES[self.tables.shape.schedule].splits_backward:
            return self.forward, self.backward
        weight = _before(self.tables.weight_ns)
        return self.forward, self.backward - weight, weight

    @staticmethod
    def _largest(values: Array) -> Array:
        """[n, n] largest value of layers [start, end)."""
        size = len(values) + 1
        largest = np.zeros((size, size), dtype=np.int64)
        for start in range(len(values)):
            largest[start, start + 1 :] = np.maximum.accumulate(values[start:])
        return largest

    def farthest_ends(self, group: int, held: int, put_off: int = 0) -> Array:
        """[n] last end with which a stage from each layer fits a GPU of the group.

        With so many micro-batches, see `formulations.schedules.stage_moments`. The start itself
        where not one layer fits: memory grows with the layers, so every end up to the last fits.
        """
        key = (group, held, put_off)
        if key not in self._known:
            tables = self.tables
            whole = self._static + held * self._activation + put_off * self._put_off
            need = whole[None, :] - whole[:, None] + self._workspace + tables.memory.fixed_bytes
            ends = np.arange(len(whole))
            fits = (need <= tables.capacity_bytes[group]) & (ends[None, :] > ends[:, None])
            self._known[key] = ends + fits.sum(axis=1)
        return self._known[key]
