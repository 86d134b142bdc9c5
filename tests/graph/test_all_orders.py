"""All node orders at once: as good as one after the other, and none beyond the limit."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.enumeration.engine import solve_split
from solver.graph.all_orders import free_order, lane_width, order_graph
from solver.graph.problem import Intervals
from tests import brute_force
from tests.enumeration.test_engine import NO_CUTOFF, even_tables
from tests.random_configs import crowded_instance
from tests.seeds import one_each
from tests.small_instances import plain_config


@pytest.mark.parametrize("schedule", [None, "zb-h1"])
@pytest.mark.parametrize("seed", one_each(range(48), 8))
def test_all_orders_at_once_equal_brute_force(seed: int, schedule: ScheduleName | None) -> None:
    """The free order finds the least step time over every order and split that fits."""
    tables = even_tables(seed, schedule)
    if tables is None:
        pytest.skip("no such configuration")
    problem = free_order(Intervals(tables), Placer(tables))
    assert problem is not None
    found = solve_split(problem, NO_CUTOFF)
    assert found.complete
    assert found.step_time_ns == brute_force.optimum_ns(tables)


def on_nodes(gpus: int, nodes: tuple[int, int], dp: int, pp: int) -> CostTables:
    instance = crowded_instance(1)
    groups = tuple(group.but(gpus_per_node=gpus) for group in instance.cluster.groups)
    instance = instance.but(cluster={"groups": groups}, search={"micro_batches": "even"})
    return build_tables(instance, plain_config(nodes, dp=dp, pp=pp))


def test_order_graph_is_none_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = on_nodes(1, (4, 4), 2, 4)
    intervals, placer = Intervals(tables), Placer(tables)
    assert order_graph(intervals, placer, 4) is not None
    monkeypatch.setattr("solver.graph.all_orders.ARC_LIMIT", 1)
    assert order_graph(intervals, placer, 4) is None


def test_lanes_are_what_no_node_border_parts() -> None:
    """Nodes of one GPU part every replica; nodes of 4 slots and dp 6 leave lanes of 2."""
    assert lane_width(on_nodes(1, (4, 4), 4, 2)) == 1
    assert lane_width(on_nodes(4, (2, 1), 6, 2)) == 2
