"""Bounds of configurations whose stages choose their degrees: none above the best plan."""

import pytest

from formulations.costs.tables import CostTables
from formulations.space import configs
from solver.bounds.stage_choice import StageChoice
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.search.enumeration import enumerate_config
from tests.recorded import Cases, recorded
from tests.seeds import one_each
from tests.stage_degrees import meshed_instance, stage_instance


@pytest.mark.parametrize("seed", one_each(range(20), 5))
def test_no_bound_is_above_the_best_plan(seed: int) -> None:
    """And the largest of an instance is no less than a tenth of it."""
    instance, share = stage_instance(seed), 0.0
    times, choice = TimeTables(instance), StageChoice(instance)
    for config in [config for config in configs(instance) if config.per_stage][:6]:
        tables: CostTables = times.costs(config)
        best_ns = enumerate_config(Intervals(tables), 1 << 50, 0.0, lambda: False).step_time_ns
        if best_ns is not None:
            assert choice.bound_ns(config) <= best_ns
            share = max(share, choice.bound_ns(config) / best_ns)
    assert share == 0 or share > 1 / 10


@recorded("stage_choice")
def test_bounds_are_the_recorded_ones() -> Cases:
    for make in (stage_instance, meshed_instance):
        for seed in range(8):
            choice = StageChoice(instance := make(seed))
            staged = [config for config in configs(instance) if config.per_stage]
            yield f"{make.__name__} {seed}", sorted(map(choice.bound_ns, staged))
