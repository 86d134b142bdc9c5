"""Bounds over extreme links and zones: never above the best plan, and as high as crossing costs."""

from collections.abc import Sequence

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.bounds.closed_forms import closed_forms
from solver.bounds.largest_share import config_bound_ns
from solver.graph.all_orders import free_order
from solver.graph.placements import StageZones
from solver.graph.problem import Intervals
from solver.search.enumeration import enumerate_config
from tests import brute_force
from tests.random_configs import extreme_optimum_ns, extreme_tables
from tests.seeds import few_and_many

NO_CUTOFF = 1 << 50


def optimum_ns(seed: int) -> int:
    """Least step time of extreme tables; `NO_CUTOFF` if nothing fits."""
    best = extreme_optimum_ns(seed)
    return NO_CUTOFF if best is None else best


@pytest.mark.parametrize("seeds", few_and_many(range(240), 24))
def test_no_bound_exceeds_the_optimum(seeds: Sequence[int]) -> None:
    """In closed form, and over the graph of all orders, with and without a cutoff."""
    for seed in seeds:
        tables, best = extreme_tables(seed), optimum_ns(seed)
        config = tables.config
        times = layer_times(
            tables.instance, config.degrees, config.micro_batch, config.recompute[0]
        )
        assert closed_forms(tables.instance, [config], [times])[0].bound_ns <= best, seed
        assert config_bound_ns(Intervals(tables), NO_CUTOFF) <= best, seed
        assert best == NO_CUTOFF or config_bound_ns(Intervals(tables), best + 1) <= best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(240), 24))
def test_closing_a_config_finds_its_optimum(seeds: Sequence[int]) -> None:
    """Below a cutoff of 1 ns more, and nothing below the optimum itself."""
    for seed in seeds:
        intervals, best = Intervals(extreme_tables(seed)), optimum_ns(seed)
        above = min(best + 1, NO_CUTOFF)
        answer = enumerate_config(intervals, above, 0.0, lambda: False)
        assert answer.complete, seed
        assert answer.step_time_ns == (None if best == NO_CUTOFF else best), seed
        if best < NO_CUTOFF:
            answer = enumerate_config(intervals, best, 0.0, lambda: False)
            assert answer.complete, seed
            assert answer.plan is None, seed


@pytest.mark.parametrize("seeds", few_and_many(range(240), 24))
def test_a_stage_that_spans_zones_takes_as_long_as_said(seeds: Sequence[int]) -> None:
    """Every order with such a stage has only splits of at least `spanning_ns`."""
    for seed in seeds:
        tables = extreme_tables(seed)
        zones = StageZones(Placer(tables))
        if not zones.known:
            continue
        spanning = [
            order
            for order in brute_force.all_orders(tables)
            if any(len(set(own)) > 1 for own in stage_zones(tables, order))
        ]
        best = brute_force.optimum_ns(tables, orders=spanning)
        assert best is None or zones.spanning_ns() <= best, seed
        others = [one for one in brute_force.all_orders(tables) if one not in spanning]
        assert zones.aligned or not others, seed


def stage_zones(tables: CostTables, order: Sequence[int]) -> list[list[int]]:
    """Per stage the zone of each of its slots."""
    zone, dp = tables.instance.cluster.zone_of_group, tables.config.dp
    slots = [zone[j] for j in order for _ in range(tables.slots_per_node[j])]
    return [slots[i : i + dp] for i in range(0, len(slots), dp)]


@pytest.mark.parametrize("seed", [4, 22, 58])
def test_orders_that_keep_stages_in_one_zone_are_exact(seed: int) -> None:
    """With `split` the graph has those orders, at the costs that they have."""
    tables = extreme_tables(seed)
    problem = free_order(Intervals(tables), Placer(tables), split=True)
    assert problem is not None
    apart = [
        order
        for order in brute_force.all_orders(tables)
        if all(len(set(own)) == 1 for own in stage_zones(tables, order))
    ]
    assert bool(problem.stages) == bool(apart)
