"""Closing by relaxations: never a wrong bound or plan, and orders that follow their groups."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.bounds.surrogate_replica import order_along
from solver.graph.problem import Intervals
from solver.search.by_relaxation import ByRelaxation
from tests import brute_force
from tests.enumeration.test_engine import NO_CUTOFF, even_tables
from tests.random_configs import crowded_instance
from tests.seeds import one_each
from tests.small_instances import plain_config


@pytest.mark.parametrize("schedule", [None, "zb-h1"])
@pytest.mark.parametrize("seed", one_each(range(48), 8))
@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_what_relaxations_say_holds_for_the_optimum(
    seed: int, gap: float, schedule: ScheduleName | None
) -> None:
    """The bound is never above the optimum, the plan never below, and closed means within gap."""
    tables = even_tables(seed, schedule)
    if tables is None:
        pytest.skip("no such configuration")
    best = brute_force.optimum_ns(tables)
    if best is None:
        pytest.skip("no plan fits")
    search = ByRelaxation(Intervals(tables), Placer(tables), gap, lambda: False, NO_CUTOFF)
    complete = search.run()
    assert search.best >= best
    if search.plan is not None:
        assert search.bound_ns <= search.best
    assert min(search.bound_ns, search.best) <= best
    assert not complete or search.bound_ns >= search.best * (1 - gap)


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
