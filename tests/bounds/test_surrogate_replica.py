"""One replica in place of all bounds every plan; orders follow the groups of its stages."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.bounds.node_classes import classes_of
from solver.bounds.surrogate_replica import Relaxation, SurrogateReplica, order_along
from solver.enumeration.engine import solve_split
from solver.graph.problem import Intervals
from tests import brute_force
from tests.enumeration.test_engine import even_tables
from tests.random_configs import crowded_instance
from tests.seeds import one_each
from tests.small_instances import plain_config


@pytest.mark.parametrize("schedule", [None, "zb-h1"])
@pytest.mark.parametrize("seed", one_each(range(48), 8))
def test_one_replica_is_never_slower_than_the_best_plan(
    seed: int, schedule: ScheduleName | None
) -> None:
    tables = even_tables(seed, schedule)
    best = None if tables is None else brute_force.optimum_ns(tables)
    if tables is not None and best is not None:
        intervals = Intervals(tables)
        replica = SurrogateReplica(intervals, Placer(tables), classes_of(intervals))
        relaxation = Relaxation(replica, best + 1)
        assert not relaxation.refutes(lambda: False)
        assert relaxation.problem is not None
        assert best // 2 < relaxation.bound_ns <= best
        assert solve_split(relaxation.problem, best + 1).bound_ns <= best


def three_types() -> CostTables:
    """Six nodes of one GPU: two fast ones, two slow ones, and two a little less slow."""
    instance = crowded_instance(1)
    fast, slow = sorted(instance.cluster.groups, key=lambda group: -group.gpu.peak_flops["bf16"])
    peak = {"bf16": slow.gpu.peak_flops["bf16"] * 1.01}
    types = (fast, slow, slow.but(name="near", gpu={"name": "near", "peak_flops": peak}))
    groups = tuple(g.but(nodes=2, gpus_per_node=1) for g in types)
    instance = instance.but(cluster={"groups": groups})
    return build_tables(instance, plain_config((2, 2, 2), dp=1, pp=6))


def test_bug_an_order_takes_no_nodes_that_later_stages_want() -> None:
    """Where the wanted nodes run out, others of like speed come, not fast ones without a spare."""
    assert order_along(three_types(), (0, 2, 2, 2, 2, 0)) == (0, 2, 2, 1, 1, 0)
