"""Lower estimates are never above the simulated step time."""

from collections.abc import Iterator

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, split_costs
from formulations.costs.tables import build_tables
from formulations.decisions import even_shares
from formulations.instance import Instance, SearchSpace
from solver.heuristics.choose import group_of_slot
from solver.heuristics.estimates import (
    closed_form_ns,
    compute_bound_ns,
    filling_bound_ns,
    pipeline_bound_ns,
    work_bound_ns,
)
from solver.heuristics.orders import node_orders
from solver.heuristics.stages import Split, StageCosts
from solver.search.shapes import shapes
from solver.simulate import step_time_ns
from tests.chain_instances import FAST, SLOW, all_splits, chain_instance, chain_tables
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
    """Work and filling <= simulation, compute of a split <= whole pipeline <= simulation."""
    for instance, stages, costs, split in cases(seed):
        shape = costs.shape
        times = layer_times(instance, shape.tp, shape.micro_batch, shape.recompute)
        step_ns = step_time_ns(costs)
        assert closed_form_ns(instance, shape, times)[0] <= step_ns
        assert compute_bound_ns(stages, split) <= pipeline_bound_ns(costs) <= step_ns


def test_work_bound_of_two_equal_stages_is_half_the_work() -> None:
    """4 micro-batches of 6 ms on 2 equal GPUs: 12 ms, less float noise."""
    tables = chain_tables(chain_instance([1, 1], [SLOW, SLOW]))
    times = layer_times(tables.instance, 1, 1, "none")
    assert work_bound_ns(tables.instance, tables.shape, times) == pytest.approx(12_000_000, abs=1)


def test_filling_bound_of_two_equal_stages() -> None:
    """4 micro-batches, 1 ms + 2 ms on each of 2 equal GPUs: 6 * (1 + 24/17) ms.

    Forward passes are a third of the work, so c = 3 - 1/3 on the first stage and 3 on the second;
    weight v loads 3/8 v + 1/3 v = 17/24 v, which is 1 for v = 24/17.
    """
    tables = chain_tables(chain_instance([1, 1], [SLOW, SLOW]))
    times = layer_times(tables.instance, 1, 1, "none")
    bound = filling_bound_ns(tables.instance, tables.shape, times)
    assert bound == pytest.approx(6e6 * 41 / 17, abs=1)
    assert closed_form_ns(tables.instance, tables.shape, times) == (bound, "filling")


def test_filling_bound_leaves_out_groups_that_are_too_slow() -> None:
    """1 micro-batch of 2 blocks on a fast and a slow GPU: the latency on fast ones, 2 * 1.5 ms."""
    instance = chain_instance([1, 1], [FAST, SLOW])
    workload = instance.workload.model_copy(update={"global_batch": 1})
    tables = chain_tables(instance.model_copy(update={"workload": workload}))
    times = layer_times(tables.instance, 1, 1, "none")
    assert filling_bound_ns(tables.instance, tables.shape, times) == pytest.approx(3e6, abs=1)


def test_filling_bound_says_nothing_of_unlike_shares() -> None:
    """Two replicas whose shares may differ: 0, and the work bound stands."""
    search = SearchSpace(micro_batches="uneven")
    tables = chain_tables(chain_instance([1, 1], [SLOW] * 4, search), dp=2)
    times = layer_times(tables.instance, 1, 1, "none")
    assert filling_bound_ns(tables.instance, tables.shape, times) == 0
    assert closed_form_ns(tables.instance, tables.shape, times)[1] == "work"
