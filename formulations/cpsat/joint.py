"""Split, node order and shares of one shape at once.

Sets, parameters, variables. Those of `layer_to_stage`, `node_order` and `microbatches`, whose
free parts this model composes; a part that the caller gives, or that leaves no choice (one node
group; even shares), is fixed.
Objective. Step time: `step_time`.
Constraints. (1)-(5) of `step_time`, (6)-(8) of `layer_to_stage`, (9)-(11) of `microbatches`,
(12)-(21) and (26) of `node_order`. Nothing is added: products of literals of different parts arise
only as enforcement literals of (1), (2), (5) and (17).
Assumptions. Those of the parts; even shares need dp to divide the number of micro-batches.
Left out. Idle nodes: the shape says how many nodes of each group are used.
Size. The sum of the parts, with O(p L) terms in the rows of (1), (2) and (17).
"""

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.layer_to_stage import SplitVariables
from formulations.cpsat.microbatches import ShareVariables
from formulations.cpsat.node_order import order_part
from formulations.cpsat.parts import Order, Parts, Shares
from formulations.cpsat.step_time import Built
from formulations.decisions import even_shares, share_range
from formulations.fixed import ALL_FREE, FixedOrder, FixedShares, FixedSplit, Given


def _shares(model: cp_model.CpModel, tables: CostTables, order: Order, given: Given) -> Shares:
    if given.micro_batches is not None:
        return FixedShares(given.micro_batches)
    if tables.instance.search.micro_batches == "even":
        return FixedShares(even_shares(tables))
    return ShareVariables(model, tables, order, share_range(tables, given.largest_share))


def build(
    tables: CostTables, given: Given = ALL_FREE, model: cp_model.CpModel | None = None
) -> Built:
    """The model of one shape. `model`: where to build it; None for one of its own."""
    model = cp_model.CpModel() if model is None else model
    placed = order_part(model, tables) if given.order is None else FixedOrder(tables, given.order)
    split = (
        SplitVariables(model, tables) if given.boundaries is None else FixedSplit(given.boundaries)
    )
    shares = _shares(model, tables, placed, given)
    return Built(model, tables, Parts(split, placed, shares), given.max_step_time_ns)
