"""Memory of one shape: constraint (2) of `step_time`."""

from itertools import pairwise, product

import numpy as np
import pulp

from formulations.costs.tables import Array, CostTables
from formulations.milp.big_m import largest_value
from formulations.milp.parts import Order, Shares, Split
from formulations.milp.runs import bytes_needed
from formulations.milp.terms import (
    Linear,
    Literal,
    duration,
    require_at_most,
    total_of,
    weighted,
)
from formulations.moments import Moment, chunk_bytes, first_moments

#: Bytes that rows of several chunks count as one, so that their coefficients are small.
UNIT_BYTES = 1 << 16


def add_memory(
    model: pulp.LpProblem, tables: CostTables, split: Split, order: Order, shares: Shares
) -> None:
    """Every slot, for every group and moment that may occur."""
    shape = tables.shape
    for d in range(shape.pp):
        rows = (_OneChunk if shape.vpp == 1 else _Chunks)(model, tables, split, d)
        for r in range(shape.dp):
            for m, moment in first_moments(shape, d, shares.choices(r)):
                reached = shares.at_least(r, m)
                for j, owner in order.types(d * shape.dp + r):
                    rows.fit(moment, j, weighted([-1, -1, 2], [owner, reached, 1]))


class _OneChunk:
    """Rows of a device with one stage."""

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, split: Split, device: int
    ) -> None:
        self.model, self.tables, self.split, self.stage = model, tables, split, device
        self._ends: dict[tuple[Moment, int], Array] = {}

    def fit(self, moment: Moment, group: int, slack: Linear) -> None:
        """One group and moment, unless `slack`; of equal ends the last start implies the others."""
        if (moment, group) not in self._ends:
            self._ends[moment, group] = _fitting_ends(self.tables, moment, group)
        ends = self._ends[moment, group]
        for start in np.flatnonzero(np.diff(ends, append=-1)).tolist():
            end = int(ends[start])
            if end == self.tables.num_layers:
                continue
            literals = self.split.begun(self.stage, start), self.split.begun(self.stage + 1, end)
            left = weighted([1, -1], literals)
            if not (isinstance(left, int) and left <= 0):
                require_at_most(self.model, 2, left, slack)


def _fitting_ends(tables: CostTables, moment: Moment, group: int) -> Array:
    """[L] largest end of a run from each layer that fits a group's GPUs; the layer if none does."""
    fits = bytes_needed(tables, *moment)[:-1] <= tables.capacity_bytes[group]
    after = np.triu(np.ones_like(fits), k=1)
    ends: Array = np.arange(tables.num_layers) + (fits & after).sum(axis=1)
    return ends


class _Chunks:
    """Rows of a device with several stages: whole units of its layers are at most those it has."""

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, split: Split, device: int
    ) -> None:
        self.model, self.tables, self.split = model, tables, split
        self.stages = tables.shape.stages_of(device)
        self.workspace = self._largest(f"workspace_{device}", tables.memory.workspace_bytes)
        self._needs: dict[Moment, Linear] = {}

    def _largest(self, name: str, sizes: Array) -> Linear:
        """At least the units of every layer: of every run of equal ones that a stage meets."""
        units = sizes // UNIT_BYTES
        if not units.any():
            return 0
        largest = duration(self.model, name, int(units.max()))
        starts = np.flatnonzero(np.diff(units, prepend=-1)).tolist()
        for k, (start, end) in product(self.stages, pairwise([*starts, len(units)])):
            meets: list[Literal] = [self.split.begun(k, end - 1), self.split.begun(k + 1, start)]
            value = int(units[start])
            require_at_most(self.model, 2, weighted([value, -value], meets), largest)
        return largest

    def _needed(self, moment: Moment) -> Linear:
        sizes = chunk_bytes(self.tables, moment)
        parts = [
            self.split.stage_sum(k, own // UNIT_BYTES)
            for k, own in zip(self.stages, sizes, strict=True)
        ]
        fixed = self.tables.memory.fixed_bytes // UNIT_BYTES
        return total_of(fixed, self.workspace, *parts)

    def fit(self, moment: Moment, group: int, slack: Linear) -> None:
        """One group and moment, unless `slack`."""
        if moment not in self._needs:
            self._needs[moment] = self._needed(moment)
        need, room = self._needs[moment], int(self.tables.capacity_bytes[group]) // UNIT_BYTES
        over = largest_value(need) - room
        if over > 0:
            require_at_most(self.model, 2, need, weighted([1, over], [room, slack]))
