"""Memory of devices with several chunks: constraint (2) of `step_time`."""

from ortools.sat.python import cp_model

from formulations.costs.memory import LayerMemory
from formulations.costs.tables import CostTables
from formulations.cpsat.parts import Parts, Split
from formulations.cpsat.terms import Linear, require_at_most, total_of
from formulations.moments import Moment, chunk_bytes, first_moments


def add_memory(model: cp_model.CpModel, tables: CostTables, parts: Parts) -> None:
    """Every slot, for every group and moment that may occur."""
    shape = tables.shape
    for d in range(shape.pp):
        needed = _Needed(parts.split, shape.stages_of(d))
        for r in range(shape.dp):
            for m, moment in first_moments(shape, d, parts.shares.choices(r)):
                for j, literal in parts.order.types(d * shape.dp + r):
                    require_at_most(
                        model,
                        needed.at(moment, tables.memory[j]),
                        int(tables.capacity_bytes[j]),
                        literal,
                        parts.shares.at_least(r, m),
                    )


class _Needed:
    """Bytes of a device with these stages, at a moment, on GPUs with such a memory."""

    def __init__(self, split: Split, stages: range) -> None:
        self.split, self.stages = split, stages
        self._workspaces: dict[int, Linear] = {}
        self._known: dict[tuple[Moment, int], Linear] = {}

    def at(self, moment: Moment, memory: LayerMemory) -> Linear:
        """A linear expression, made once."""
        key = moment, id(memory)
        if key not in self._known:
            self._known[key] = self._sum(moment, memory)
        return self._known[key]

    def _sum(self, moment: Moment, memory: LayerMemory) -> Linear:
        if id(memory) not in self._workspaces:
            largest = self.split.largest(self.stages, memory.workspace_bytes)
            self._workspaces[id(memory)] = largest
        sizes = zip(self.stages, chunk_bytes(memory, moment), strict=True)
        parts = [self.split.stage_sum(k, own) for k, own in sizes]
        return total_of(memory.fixed_bytes, self._workspaces[id(memory)], *parts)
