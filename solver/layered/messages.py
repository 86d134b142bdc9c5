"""Messages between stages, whose size the layer before the boundary decides."""

from formulations.costs.tables import CostTables
from solver.layered.problem import Mask


def by_message(tables: CostTables, stage: int, allowed: Mask) -> dict[int, Mask]:
    """Layers that a stage may have, by the kind of message that comes to it; one at least.

    So the arcs of a stage are told apart by what crosses the boundary before their first layer.
    """
    if stage == 0 or len(tables.tensors) == 1:
        return {0: allowed}
    kinds = range(len(tables.tensors))
    masks = {n: allowed & (tables.message_kind == n)[:, None] for n in kinds}
    return {n: mask for n, mask in masks.items() if mask.any()} or {0: allowed}


def longest(*times: tuple[int, ...]) -> tuple[int, ...]:
    """The largest of several times, kind by kind of message."""
    return tuple(map(max, *times))
