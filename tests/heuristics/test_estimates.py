"""Lower bounds of the step time of a split are never above the simulated one."""

from collections.abc import Iterator

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, split_costs
from formulations.costs.tables import build_tables
from formulations.decisions import even_shares
from formulations.space import shapes
from solver.heuristics.balance import Balance, Split, SplitSpace, order_balance
from solver.heuristics.node_orders import compute_bound_ns, node_orders, pipeline_bound_ns
from solver.simulate import step_time_ns
from tests.chain_instances import all_splits
from tests.small_instances import random_instance

Case = tuple[Balance, PlanCosts, Split]


def cases(seed: int) -> Iterator[Case]:
    """Every shape, order and split of a tiny instance."""
    instance = random_instance(seed)
    for shape in shapes(instance):
        tables = build_tables(instance, shape)
        shares = even_shares(tables)
        for order in node_orders(shape.nodes_used, 6):
            stages = order_balance(SplitSpace(tables), order, shares)
            placement = Placer(tables).costs(order)
            for split in all_splits(tables.num_layers, shape.pp):
                yield stages, split_costs(tables, placement, split, shares), split


@pytest.mark.parametrize("seed", range(12))
def test_bounds_of_a_split_stay_below_its_simulated_step_time(seed: int) -> None:
    """Compute alone <= whole pipeline <= simulation."""
    for stages, costs, split in cases(seed):
        step_ns = step_time_ns(costs)
        assert compute_bound_ns(stages, split) <= pipeline_bound_ns(costs) <= step_ns
