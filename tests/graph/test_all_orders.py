"""All node orders at once: as good as one after the other, and none beyond the limit."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.enumeration.engine import solve_split
from solver.graph.all_orders import free_order, lane_width, order_graph
from solver.graph.placements import fixed_order, replica_classes
from solver.graph.problem import Intervals
from tests import brute_force
from tests.enumeration.test_engine import NO_CUTOFF, even_tables
from tests.random_configs import crowded_instance
from tests.seeds import one_each
from tests.small_instances import layer, plain_config, workload


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


def deep_tables(dp: int, stages: int) -> CostTables:
    """Eight blocks over eight nodes of two types, one GPU each, four micro-batches a replica."""
    instance = crowded_instance(1)
    kinds = ["embedding", *["block"] * 8, "head"]
    chain = [layer(kind, 10 + 7 * i % 5, 10**6, 10**6) for i, kind in enumerate(kinds)]
    nodes = dp * stages // 2
    groups = tuple(group.but(nodes=nodes, gpus_per_node=1) for group in instance.cluster.groups)
    instance = instance.but(
        workload=workload(chain, 4 * dp, 10**7, tied=True),
        search={"micro_batches": "even"},
        cluster={"groups": groups},
    )
    config = plain_config((nodes, nodes), dp=dp, pp=stages)
    return build_tables(instance, config)


@pytest.mark.parametrize(("dp", "stages"), [(1, 8), (2, 4), (4, 2)])
def test_all_orders_at_once_equal_one_by_one(dp: int, stages: int) -> None:
    """70 orders of eight nodes, replicas on unlike GPUs: the least of all single orders."""
    tables = deep_tables(dp, stages)
    intervals, placer = Intervals(tables), Placer(tables)
    problem = free_order(intervals, placer)
    assert problem is not None
    found = solve_split(problem, NO_CUTOFF)
    times = []
    for order in brute_force.all_orders(tables):
        placement = placer.costs(order)
        classes = replica_classes(placement, dp)
        single = fixed_order(intervals, placement, classes, [4] * len(classes))
        time = solve_split(single, NO_CUTOFF).step_time_ns
        times.extend([time] if time is not None else [])
    assert found.step_time_ns == min(times)


def test_order_graph_is_none_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More arcs than allowed on a stage: no graph."""
    tables = deep_tables(2, 4)
    intervals, placer = Intervals(tables), Placer(tables)
    assert order_graph(intervals, placer, 4) is not None
    monkeypatch.setattr("solver.graph.all_orders.ARC_LIMIT", 1)
    assert order_graph(intervals, placer, 4) is None


def test_lanes_are_what_no_node_border_parts() -> None:
    """Nodes of one GPU part every replica; nodes of 4 slots and dp 6 leave lanes of 2."""
    assert lane_width(deep_tables(4, 2)) == 1
    tables = deep_tables(2, 4)
    groups = tuple(group.but(gpus_per_node=4) for group in tables.instance.cluster.groups)
    wide = tables.instance.but(cluster={"groups": groups})
    assert lane_width(build_tables(wide, plain_config((2, 1), dp=6, pp=2))) == 2
