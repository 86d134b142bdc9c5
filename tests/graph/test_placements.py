"""Bounds over extreme links and zones: never above the best plan, and as high as crossing costs."""

from collections.abc import Sequence

import pytest

from formulations.costs.placement import Placer
from solver.bounds.largest_share import config_bound_ns
from solver.graph.all_orders import free_order
from solver.graph.placements import StageZones
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.search.enumeration import enumerate_config
from tests import brute_force
from tests.equal_nodes import equal_nodes
from tests.random_configs import extreme_optimum_ns, extreme_tables
from tests.seeds import few_and_many

NO_CUTOFF = 1 << 50


def test_lanes_share_the_link_between_zones() -> None:
    """Two lanes of three replicas: six messages of 1 MB at 0.5 GB/s, after 1 ms."""
    zones = StageZones(Placer(equal_nodes(nodes=2, gpus=4, tp=1, dp=4, pp=2, zones="xy")))
    assert zones.sends((0, 0), (1, 1), 3) == [(13_000_000,)] * 2


@pytest.mark.parametrize("seeds", few_and_many(range(240), 24))
def test_bounds_and_plans_over_extreme_links(seeds: Sequence[int]) -> None:
    """No bound is above the optimum, which is found below 1 ns more, and nothing below itself."""
    for seed in seeds:
        tables, best = extreme_tables(seed), extreme_optimum_ns(seed)
        intervals, limit = Intervals(tables), NO_CUTOFF if best is None else best
        assert TimeTables(tables.instance).forms([tables.config])[0].bound_ns <= limit, seed
        for cutoff in {NO_CUTOFF, limit, min(limit + 1, NO_CUTOFF)}:
            assert config_bound_ns(intervals, cutoff) <= limit, seed
            answer = enumerate_config(intervals, cutoff, 0.0, lambda: False)
            expected = best if cutoff > limit else None
            assert (answer.complete, answer.step_time_ns) == (True, expected), seed


@pytest.mark.parametrize("seeds", few_and_many(range(240), 24))
def test_a_stage_that_spans_zones_takes_as_long_as_said(seeds: Sequence[int]) -> None:
    """Orders with such a stage have only splits of at least `spanning_ns`; the others a graph."""
    for seed in seeds:
        tables = extreme_tables(seed)
        placer = Placer(tables)
        zones, dp = StageZones(placer), tables.config.dp
        if not zones.known:
            continue
        apart, spanning = list[tuple[int, ...]](), list[tuple[int, ...]]()
        for order in brute_force.all_orders(tables):
            slots = [zones.zone_of_group[j] for j in order for _ in range(tables.slots_per_node[j])]
            in_one_zone = all(len(set(slots[i : i + dp])) == 1 for i in range(0, len(slots), dp))
            (apart if in_one_zone else spanning).append(order)
        best = brute_force.optimum_ns(tables, orders=spanning)
        assert best is None or zones.spanning_ns() <= best, seed
        assert zones.aligned or not apart, seed
        problem = free_order(Intervals(tables), placer, split=True)
        assert problem is None or bool(problem.stages) == bool(apart), seed
