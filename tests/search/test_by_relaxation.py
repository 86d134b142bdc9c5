"""Relaxations to one replica: bounds below every plan, and plans that follow them."""

from collections.abc import Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables
from solver.graph.problem import Intervals
from solver.search.by_relaxation import ByRelaxation, _seldom
from solver.simulate import step_time_ns
from tests import brute_force
from tests.random_configs import random_tables
from tests.seeds import few_and_many


def pipelines(seeds: Sequence[int]) -> list[tuple[CostTables, int]]:
    """Several stages, even shares, and the best step time."""
    found = list[tuple[CostTables, int]]()
    for seed in seeds:
        tables = random_tables(seed)
        even = tables.num_micro_batches % tables.config.dp == 0
        shares = [(tables.num_micro_batches // tables.config.dp,) * tables.config.dp]
        if even and tables.config.pp > 1 and tables.config.vpp == 1:
            best = brute_force.optimum_ns(tables, shares=shares)
            if best is not None:
                found.append((tables, best))
    return found


@pytest.mark.parametrize("seeds", few_and_many(range(120), 6))
def test_bounds_and_plans_enclose_the_optimum(seeds: Sequence[int]) -> None:
    """No bound is above the best plan, no plan is below it, and what is found is what it takes."""
    cases = pipelines(seeds)
    assert cases
    for tables, best in cases:
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


def test_stopped_at_once_it_claims_nothing_that_it_has_not_proved() -> None:
    """The bound that it began with, or what closes without a question."""
    for tables, best in pipelines(range(0, 60, 6)):
        search = ByRelaxation(Intervals(tables), Placer(tables), 0.0, lambda: True, 2 * best, 7)
        search.run()
        assert 7 <= search.bound_ns <= best


def test_moves_ask_seldom() -> None:
    """Once for a hundred of them."""
    asked = list[int]()

    def stop() -> bool:
        asked.append(1)
        return False

    seldom = _seldom(stop)
    assert not any(seldom() for _ in range(250))
    assert len(asked) == 3
