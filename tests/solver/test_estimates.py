"""Lower estimates are never above the simulated step time."""

from collections.abc import Iterator

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, split_costs
from formulations.costs.tables import build_tables
from formulations.decisions import even_shares
from formulations.instance import Instance
from solver.heuristics.choose import group_of_slot
from solver.heuristics.estimates import compute_bound_ns, pipeline_bound_ns, work_bound_ns
from solver.heuristics.orders import node_orders
from solver.heuristics.stages import Split, StageCosts
from solver.search.shapes import shapes
from solver.simulate import step_time_ns
from tests.chain_instances import SLOW, all_splits, chain_instance, chain_tables
from tests.small_instances import random_instance

pytestmark = pytest.mark.usefixtures("round_times")

Case = tuple[Instance, StageCosts, PlanCosts, Split]


def cases(seed: int) -> Iterator[Case]:
    """Every shape, order and split of a tiny instance."""
    instance = random_instance(seed)
    for shape in shapes(instance):
        tables = build_tables(instance, shape)
        shares = even_shares(tables)
        for order in node_orders(shape.nodes_used, 6):
            stages = StageCosts(tables, group_of_slot(tables, order), shares)
            placement = Placer(tables).costs(order)
            for split in all_splits(tables.num_layers, shape.pp):
                yield instance, stages, split_costs(tables, placement, split, shares), split


@pytest.mark.parametrize("seed", range(12))
def test_estimates_stay_below_the_simulated_step_time(seed: int) -> None:
    """Work <= compute of any split, compute <= whole pipeline <= simulation."""
    for instance, stages, costs, split in cases(seed):
        shape = costs.shape
        times = layer_times(instance, shape.tp, shape.micro_batch, shape.recompute)
        step_ns = step_time_ns(costs)
        assert work_bound_ns(instance, shape, times) <= step_ns
        assert compute_bound_ns(stages, split) <= pipeline_bound_ns(costs) <= step_ns


def test_work_bound_of_two_equal_stages_is_half_the_work() -> None:
    """4 micro-batches of 6 ms on 2 equal GPUs: 12 ms, less float noise."""
    tables = chain_tables(chain_instance([1, 1], [SLOW, SLOW]))
    times = layer_times(tables.instance, 1, 1, "none")
    assert work_bound_ns(tables.instance, tables.shape, times) == pytest.approx(12_000_000, abs=1)
