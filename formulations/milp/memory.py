"""Memory of devices with several chunks: constraint (2) of `step_time`."""

from itertools import pairwise, product

import numpy as np
import pulp

from formulations.costs.memory import LayerMemory
from formulations.costs.tables import Array, CostTables
from formulations.milp.big_m import largest_value
from formulations.milp.device_ways import DeviceWays
from formulations.milp.parts import Parts, Split
from formulations.milp.terms import (
    Linear,
    Literal,
    duration,
    require_at_most,
    total_of,
    weighted,
)
from formulations.moments import Moment, chunk_bytes, first_moments


def add_memory(model: pulp.LpProblem, tables: CostTables, parts: Parts, ways: DeviceWays) -> None:
    """Every slot, for every group, moment and way to recompute that may occur."""
    shape = tables.shape
    for d in range(shape.pp):
        rows = _Chunks(model, tables, parts.split, d)
        for replicas, choices in ways.kinds:
            r = replicas[0]
            for m, moment in first_moments(shape, d, choices):
                reached = parts.shares.at_least(r, m)
                for j, owner in parts.order.types(d * shape.dp + r):
                    for way, taken in enumerate(ways.of(d, r)):
                        holds = [owner, reached, taken, 1]
                        rows.fit(moment, j, way, weighted([-1, -1, -1, 3], holds))


class _Chunks:
    """Rows of a device with several stages: the bytes of their layers are at most those it has."""

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, split: Split, device: int
    ) -> None:
        self.model, self.tables, self.split = model, tables, split
        self.stages = tables.shape.stages_of(device)
        self._device = device
        self._workspaces: dict[tuple[int, int], Linear] = {}
        self._needs: dict[tuple[Moment, int, int], Linear] = {}

    def _largest(self, name: str, sizes: Array) -> Linear:
        """At least the size of every layer: of every run of equal ones that a stage meets."""
        if not sizes.any():
            return 0
        largest = duration(self.model, name, int(sizes.max()))
        starts = np.flatnonzero(np.diff(sizes, prepend=-1)).tolist()
        for k, (start, end) in product(self.stages, pairwise([*starts, len(sizes)])):
            meets: list[Literal] = [self.split.begun(k, end - 1), self.split.begun(k + 1, start)]
            value = int(sizes[start])
            require_at_most(self.model, 2, weighted([value, -value], meets), largest)
        return largest

    def _needed(self, moment: Moment, memory: LayerMemory, way: int) -> Linear:
        number, key = len(self._workspaces), (id(memory), way)
        if key not in self._workspaces:
            name = f"workspace_{self._device}" + (f"_{number}" if number else "")
            self._workspaces[key] = self._largest(name, memory.kept[way].workspace_bytes)
        sizes = zip(self.stages, chunk_bytes(memory, moment, way), strict=True)
        parts = [self.split.stage_sum(k, own) for k, own in sizes]
        return total_of(memory.fixed_bytes, self._workspaces[key], *parts)

    def fit(self, moment: Moment, group: int, way: int, slack: Linear) -> None:
        """One group, moment and way, unless `slack`."""
        memory = self.tables.memory[group]
        key = moment, id(memory), way
        if key not in self._needs:
            self._needs[key] = self._needed(moment, memory, way)
        need, room = self._needs[key], int(self.tables.capacity_bytes[group])
        over = largest_value(need) - room
        if over > 0:
            require_at_most(self.model, 2, need, weighted([1, over], [room, slack]))
