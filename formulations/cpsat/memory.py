"""Memory of devices with several chunks: constraint (2) of `step_time`."""

from ortools.sat.python import cp_model

from formulations.costs.memory import LayerMemory
from formulations.costs.tables import CostTables
from formulations.cpsat.device_ways import DeviceWays
from formulations.cpsat.parts import Parts, Split
from formulations.cpsat.terms import Linear, require_at_most, total_of
from formulations.moments import Moment, chunk_bytes, first_moments


def add_memory(model: cp_model.CpModel, tables: CostTables, parts: Parts, ways: DeviceWays) -> None:
    """Every slot, for every group, moment and way to recompute that may occur."""
    shape = tables.shape
    for d in range(shape.pp):
        needed = _Needed(parts.split, shape.stages_of(d))
        for replicas, choices in ways.kinds:
            r = replicas[0]
            for m, moment in first_moments(shape, d, choices):
                for j, literal in parts.order.types(d * shape.dp + r):
                    for way, taken in enumerate(ways.of(d, r)):
                        require_at_most(
                            model,
                            needed.at(moment, tables.memory[j], way),
                            int(tables.capacity_bytes[j]),
                            literal,
                            taken,
                            parts.shares.at_least(r, m),
                        )


class _Needed:
    """Bytes of a device with these stages, at a moment, on GPUs with such a memory."""

    def __init__(self, split: Split, stages: range) -> None:
        self.split, self.stages = split, stages
        self._workspaces: dict[tuple[int, int], Linear] = {}
        self._known: dict[tuple[Moment, int, int], Linear] = {}

    def at(self, moment: Moment, memory: LayerMemory, way: int) -> Linear:
        """A linear expression, made once."""
        key = moment, id(memory), way
        if key not in self._known:
            self._known[key] = self._sum(moment, memory, way)
        return self._known[key]

    def _sum(self, moment: Moment, memory: LayerMemory, way: int) -> Linear:
        key = id(memory), way
        if key not in self._workspaces:
            self._workspaces[key] = self.split.largest(
                self.stages, memory.kept[way].workspace_bytes
            )
        sizes = zip(self.stages, chunk_bytes(memory, moment, way), strict=True)
        parts = [self.split.stage_sum(k, own) for k, own in sizes]
        return total_of(memory.fixed_bytes, self._workspaces[key], *parts)
