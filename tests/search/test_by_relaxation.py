"""Relaxations to one replica: bounds below every plan, and plans that follow them."""

from collections.abc import Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from solver.graph.problem import Intervals
from solver.search.by_relaxation import ByRelaxation
from solver.simulate import step_time_ns
from tests import brute_force
from tests.random_configs import random_tables
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(120), 6))
def test_bounds_and_plans_enclose_the_optimum(seeds: Sequence[int]) -> None:
    for seed in seeds:
        tables = random_tables(seed)
        share, over = divmod(tables.num_micro_batches, dp := tables.config.dp)
        best = brute_force.optimum_ns(tables, shares=[(share,) * dp])
        if best is None or over or tables.config.pp == 1:
            continue
        for cutoff in (2 * best, best + 1, best):
            search = ByRelaxation(Intervals(tables), Placer(tables), 0.0, lambda: False, cutoff)
            complete = search.run()
            assert search.bound_ns <= best
            assert search.best >= best or search.plan is None
            if search.plan is not None:
                assert step_time_ns(plan_costs(tables.instance, search.plan)) == search.best
            if complete:
                assert search.bound_ns >= search.best or search.bound_ns >= cutoff
            if cutoff == best:
                assert search.plan is None
