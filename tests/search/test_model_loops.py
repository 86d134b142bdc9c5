"""The cut loop with either family of models finds the brute-force optimum, and proves it."""

from collections.abc import Sequence

import pytest

from formulations.instance.search import ScheduleName
from solver.search.engines import Family, model_engine
from tests.loop_checks import FREE, Free, feasible, finds_the_best, limited, solve_shape
from tests.random_shapes import random_tables
from tests.seeds import few_and_many

FAMILIES: tuple[Family, ...] = ("cpsat", "milp")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(240), 19))
def test_model_equals_brute_force(seeds: Sequence[int], free: Free, family: Family) -> None:
    """The best split, node order or shares, the rest given; and the best of all at once."""
    for seed in seeds:
        assert finds_the_best(model_engine(family), random_tables(seed), free, seed), seed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(70), 14))
def test_weight_gradients_and_chunks_equal_brute_force(
    seeds: Sequence[int], free: Free, schedule: ScheduleName, family: Family
) -> None:
    """The same for backwards that are split, and for several chunks per device; zones or not."""
    for seed in seeds:
        tables = random_tables(seed, seed % 20 == 0, schedule)
        assert finds_the_best(model_engine(family), tables, free, seed), seed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("free", ["order", "all"])
@pytest.mark.parametrize("seeds", few_and_many(range(120), 23))
def test_model_equals_brute_force_over_zones(
    seeds: Sequence[int], free: Free, family: Family
) -> None:
    """The same where nodes stand in several zones."""
    for seed in seeds:
        tables = random_tables(seed, zones=True)
        assert finds_the_best(model_engine(family), tables, free, seed), seed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seeds", few_and_many(range(0, 40, 2), 3))
def test_status_at_the_optimum_and_a_nanosecond_off(seeds: Sequence[int], family: Family) -> None:
    """Cut off at the optimum it is bounded, 1 ns above solved; (4) with budgets it is alike."""
    engine = model_engine(family)
    for tables, best in feasible(seeds):
        outcome = solve_shape(tables, engine, cutoff_ns=best)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("bounded", None, best)
        above = solve_shape(tables, engine, cutoff_ns=best + 1)
        within = solve_shape(limited(tables, max_step_time_s=best / 1e9), engine)
        for found in (above, within):
            assert (found.status, found.step_time_ns) == ("optimal", best)
        tight = limited(tables, max_step_time_s=(best - 1) / 1e9)
        assert solve_shape(tight, engine).status == "infeasible"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seeds", few_and_many(range(0, 40, 4), 3))
def test_no_time_leaves_the_incumbent(seeds: Sequence[int], family: Family) -> None:
    """Out of time: the plan given, with a bound that holds."""
    engine = model_engine(family)
    for tables, best in feasible(seeds):
        plan = solve_shape(tables, engine).plan
        outcome = solve_shape(tables, engine, incumbent=plan, time_limit_s=0.0)
        assert (outcome.status, outcome.step_time_ns, outcome.trouble) == ("feasible", best, None)
        assert outcome.bound_ns is not None
        assert outcome.bound_ns <= best


@pytest.mark.parametrize("family", FAMILIES)
def test_same_seed_same_plan(family: Family) -> None:
    """One worker and one seed give the same plan."""
    for tables, _ in feasible(range(0, 40, 8)):
        first, second = (solve_shape(tables, model_engine(family), seed=3) for _ in range(2))
        assert first.plan == second.plan
        assert (first.rounds, first.num_cuts) == (second.rounds, second.num_cuts)
