"""Decisions held against the rules of the plan space, in integers, whoever proposed them."""

from itertools import pairwise

from formulations.costs.plan_costs import split_costs
from formulations.costs.stage_places import placement_of
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.slot_degrees import runs_order
from formulations.stage_layouts import slots_of


def broken_rule(tables: CostTables, decisions: Decisions) -> str | None:
    """The first rule that decisions break, in words; None if they make a plan of the shape."""
    whole, used = tables.by_place, tables.shape.nodes_used
    if whole is not None and slots_of(whole, decisions.order) is None:
        return f"layout {decisions.order} does not use each GPU once, or cannot be launched"
    if whole is None and _uses(decisions.order, len(used)) != used:
        return f"node order {decisions.order} does not use each node once"
    if whole is None and not runs_order(tables.instance, tables.shape, decisions.order):
        return f"node order {decisions.order} cannot be launched"
    if not _is_split(tables, decisions.boundaries):
        return f"boundaries {decisions.boundaries} do not make stages of enough blocks"
    if not _are_shares(tables, decisions.micro_batches):
        return f"shares {decisions.micro_batches} do not distribute the micro-batches"
    placement = placement_of(tables, decisions.order)
    costs = split_costs(tables, placement, decisions.boundaries, decisions.micro_batches)
    if (costs.memory_bytes > costs.limit_bytes).any():
        return f"boundaries {decisions.boundaries} do not fit in memory"
    return None


def _uses(order: tuple[int, ...], num_groups: int) -> tuple[int, ...]:
    return tuple(order.count(j) for j in range(num_groups))


def _is_split(tables: CostTables, boundaries: tuple[int, ...]) -> bool:
    ends = boundaries[0], boundaries[-1]
    if len(boundaries) != tables.shape.num_stages + 1 or ends != (0, tables.num_layers):
        return False
    blocks = tables.blocks_before
    return all(
        a < b and blocks[b] - blocks[a] >= tables.min_blocks for a, b in pairwise(boundaries)
    )


def _are_shares(tables: CostTables, micro_batches: tuple[int, ...]) -> bool:
    even = tables.instance.search.micro_batches == "even"
    return (
        len(micro_batches) == tables.shape.dp
        and min(micro_batches) >= 1
        and sum(micro_batches) == tables.num_micro_batches
        and not (even and len(set(micro_batches)) > 1)
    )
