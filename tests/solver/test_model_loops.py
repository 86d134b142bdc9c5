"""The cut loop with either family of models finds the brute-force optimum, and proves it."""

from collections.abc import Sequence

import pytest

from formulations.instance.instance import ScheduleName
from solver.search.engines import Family, model_engine
from tests.loop_checks import FREE, Free, finds_the_best
from tests.random_shapes import random_tables
from tests.seeds import few_and_many

FAMILIES: tuple[Family, ...] = ("cpsat", "milp")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(400), 19))
def test_model_equals_brute_force(seeds: Sequence[int], free: Free, family: Family) -> None:
    """The best split, node order or shares, the rest given; and the best of all at once."""
    for seed in seeds:
        assert finds_the_best(model_engine(family), random_tables(seed), free, seed), seed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(100), 14))
def test_weight_gradients_and_chunks_equal_brute_force(
    seeds: Sequence[int], free: Free, schedule: ScheduleName, family: Family
) -> None:
    """The same for backwards that are split, and for several chunks per device; zones or not."""
    for seed in seeds:
        tables = random_tables(seed, seed % 20 == 0, schedule)
        assert finds_the_best(model_engine(family), tables, free, seed), seed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("free", ["order", "all"])
@pytest.mark.parametrize("seeds", few_and_many(range(200), 23))
def test_model_equals_brute_force_over_zones(
    seeds: Sequence[int], free: Free, family: Family
) -> None:
    """The same where nodes stand in several zones."""
    for seed in seeds:
        tables = random_tables(seed, zones=True)
        assert finds_the_best(model_engine(family), tables, free, seed), seed
