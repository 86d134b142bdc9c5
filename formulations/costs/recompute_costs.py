"""What stages cost that recompute what is said: time, and memory of the devices they lie on."""

from collections.abc import Sequence

import numpy as np

from formulations.costs.memory import MemoryParts
from formulations.costs.tables import CostTables
from formulations.plan import Recomputed
from formulations.schedules import held


def least_recomputed(tables: CostTables, layers: tuple[int, int]) -> Recomputed:
    """What a stage recomputes if memory is no object."""
    way = tables.shape.recompute[0]
    blocks = int(tables.is_block[slice(*layers)].sum())
    return Recomputed(way=way, blocks=0 if way == "none" else blocks)


def recomputed_ns(
    tables: CostTables, group: int, layers: tuple[int, int], recomputed: Recomputed
) -> int:
    """What a stage's backward pass takes longer for what it recomputes."""
    (start, end), before = layers, tables.blocks_before
    first = np.searchsorted(before, before[start] + recomputed.blocks)
    extra = tables.recompute_ns[tables.shape.recompute.index(recomputed.way)]
    return int(extra[start : min(int(first), end), group].sum())


def memory_parts(
    tables: CostTables,
    layers: Sequence[tuple[int, int]],
    device: int,
    group: int,
    micro_batches: int,
    recomputed: Sequence[Recomputed],
) -> MemoryParts:
    """Memory per GPU of a device of a replica with these layers [start, end), per chunk."""
    shape = tables.shape
    most = held(shape.schedule, shape.pp, device, micro_batches, shape.vpp)
    return tables.memory[group].parts(layers, most, tables.is_block, recomputed)
