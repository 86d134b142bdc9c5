"""The graph of devices with several chunks each: it holds every plan, once."""

from collections.abc import Sequence
from itertools import product

import pytest

from formulations.costs.placement import Placer
from solver.graph.all_orders import order_graph
from solver.graph.cuts import family_cuts
from solver.graph.devices import DeviceGraph
from solver.graph.problem import Intervals
from tests import brute_force
from tests.enumeration.test_engine import NO_CUTOFF
from tests.random_configs import random_optimum_ns, random_tables
from tests.seeds import few_and_many


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(200), 40))
def test_the_graph_holds_every_plan(seeds: Sequence[int], zones: bool) -> None:
    """Every order with every split that fits, once, and none that is not one."""
    for seed in seeds:
        tables = random_tables(seed, zones, "interleaved")
        intervals = Intervals(tables)
        share = tables.num_micro_batches // tables.config.dp
        problem = order_graph(intervals, Placer(tables), share)
        assert problem is not None
        graph = DeviceGraph(intervals, problem)
        left = graph.everything(NO_CUTOFF)
        assert left is not None
        arcs, splits = graph.plans(left)
        nodes = sum(tables.config.nodes_used)
        orders = [problem.order(own * tables.config.vpp)[:nodes] for own in arcs.tolist()]
        plans = list(zip(orders, map(tuple, splits.tolist()), strict=True))
        assert len(set(plans)) == len(plans) == graph.count(left)
        known = set(product(brute_force.all_orders(tables), brute_force.all_splits(tables)))
        assert set(plans) <= known
        if (tables.capacity_bytes >= 8e9).all():
            assert set(plans) == known
        # What paths of any schedule refute is below the best plan, but a tenth of it is refuted.
        best, paths = random_optimum_ns(seed, zones, "interleaved"), family_cuts(problem)
        if best is not None:
            for cutoff, holds in ((best + 1, True), (best // 10, False)):
                kept = graph.thinned(left, paths.rows, paths.device, cutoff)
                assert (kept is not None) == holds, seed
