"""Decisions held against the rules of the plan space, in integers, whoever proposed them."""

from itertools import pairwise

from formulations.costs.plan_costs import split_costs
from formulations.costs.stage_places import placement_of
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.space.layouts import slots_of
from formulations.space.slots import runs_order


def broken_rule(tables: CostTables, decisions: Decisions) -> str | None:
    """The first rule that decisions break, in words; None if they make a plan of the shape."""
    whole, used = tables.by_place, tables.shape.nodes_used
    if whole is not None and slots_of(whole, decisions.order) is None:
        return f"layout {decisions.order} does not use each GPU once, or cannot be launched"
    if whole is None and tuple(decisions.order.count(j) for j in range(len(used))) != used:
        return f"node order {decisions.order} does not use each node once"
    if whole is None and not runs_order(tables.instance, tables.shape, decisions.order):
        return f"node order {decisions.order} cannot be launched"
    ends, blocks = decisions.boundaries, tables.blocks_before
    fills = len(ends) == tables.shape.num_stages + 1
    fills = fills and (ends[0], ends[-1]) == (0, tables.num_layers)
    if not fills or not all(
        a < b and blocks[b] - blocks[a] >= tables.min_blocks for a, b in pairwise(ends)
    ):
        return f"boundaries {decisions.boundaries} do not make stages of enough blocks"
    shares, even = decisions.micro_batches, tables.instance.search.micro_batches == "even"
    if (
        len(shares) != tables.shape.dp
        or min(shares) < 1
        or sum(shares) != tables.num_micro_batches
        or (even and len(set(shares)) > 1)
    ):
        return f"shares {decisions.micro_batches} do not distribute the micro-batches"
    placement = placement_of(tables, decisions.order)
    costs = split_costs(tables, placement, decisions.boundaries, decisions.micro_batches)
    if (costs.memory_bytes > costs.limit_bytes).any():
        return f"boundaries {decisions.boundaries} do not fit in memory"
    return None
