"""Memory of devices with several chunks: constraint (2) of `step_time`."""

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.parts import Parts, Split
from formulations.cpsat.terms import Linear, require_at_most, total_of
from formulations.moments import Moment, chunk_bytes, first_moments


def add_memory(model: cp_model.CpModel, tables: CostTables, parts: Parts) -> None:
    """Every slot, for every group and moment that may occur."""
    shape = tables.shape
    for d in range(shape.pp):
        workspace = parts.split.largest(shape.stages_of(d), tables.memory.workspace_bytes)
        needs: dict[Moment, Linear] = {}
        for r in range(shape.dp):
            for m, moment in first_moments(shape, d, parts.shares.choices(r)):
                if moment not in needs:
                    needs[moment] = _needed(tables, parts.split, d, moment) + workspace
                for j, literal in parts.order.types(d * shape.dp + r):
                    require_at_most(
                        model,
                        needs[moment],
                        int(tables.capacity_bytes[j]),
                        literal,
                        parts.shares.at_least(r, m),
                    )


def _needed(tables: CostTables, split: Split, device: int, moment: Moment) -> Linear:
    """Bytes of a device at a moment, workspace apart."""
    sizes = chunk_bytes(tables, moment)
    stages = tables.shape.stages_of(device)
    parts = [split.stage_sum(k, own) for k, own in zip(stages, sizes, strict=True)]
    return total_of(tables.memory.fixed_bytes, *parts)
