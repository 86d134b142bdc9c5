"""Split, node order and shares of one shape at once.

Sets, parameters, variables. Those of `layer_to_stage`, `node_order` and `microbatches`, whose
free parts this model composes; a part that the caller gives, or that leaves no choice (one node
group; even shares), is fixed.
Objective. Step time: `step_time`.
Constraints. (1)-(5) of `step_time`, (6)-(8) of `layer_to_stage`, (9)-(11) of `microbatches`,
(12)-(21) and (26) of `node_order`. Nothing is added: products of decisions of different parts arise
only in (1), (2), (5) and (17), where rows that do not apply give way by a Big-M.
Assumptions. Those of the parts; even shares need dp to divide the number of micro-batches.
Left out. Idle nodes: the shape says how many nodes of each group are used.
Size. The sum of the parts.
"""

import pulp

from formulations.costs.tables import CostTables
from formulations.decisions import even_shares, share_range
from formulations.fixed import ALL_FREE, FixedOrder, FixedShares, FixedSplit, Given
from formulations.milp.layer_to_stage import SplitVariables
from formulations.milp.microbatches import ShareVariables
from formulations.milp.node_order import order_part
from formulations.milp.parts import Order, Parts, Shares
from formulations.milp.step_time import Built


def _shares(model: pulp.LpProblem, tables: CostTables, order: Order, given: Given) -> Shares:
    if given.micro_batches is not None:
        return FixedShares(given.micro_batches)
    if tables.instance.search.micro_batches == "even":
        return FixedShares(even_shares(tables))
    return ShareVariables(model, tables, order, share_range(tables, given.largest_share))


def _least(tables: CostTables, shares: Shares) -> int:
    """Least share of any replica; 1 if there are no shares at all."""
    return min((min(shares.choices(r), default=1) for r in range(tables.shape.dp)), default=1)


def build(
    tables: CostTables, given: Given = ALL_FREE, model: pulp.LpProblem | None = None
) -> Built:
    """The model of one shape. `model`: where to build it; None for one of its own."""
    model = pulp.LpProblem("joint") if model is None else model
    placed = order_part(model, tables) if given.order is None else FixedOrder(tables, given.order)
    shares = _shares(model, tables, placed, given)
    split = (
        SplitVariables(model, tables, _least(tables, shares), given.max_step_time_ns)
        if given.boundaries is None
        else FixedSplit(given.boundaries)
    )
    return Built(model, tables, Parts(split, placed, shares), given.max_step_time_ns)
