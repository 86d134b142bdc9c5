"""Local search within one configuration: starts, descents and orders near a plan."""

from itertools import islice, product
from random import Random

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.instance.search import ScheduleName
from solver.heuristics.balance import Kinds
from solver.heuristics.config_search import (
    LONGEST_NS,
    ConfigSearch,
    State,
    fair_shares,
    near_orders,
    near_splits,
    permuted,
    start_orders,
    turned_orders,
)
from solver.heuristics.trial import PathPool
from tests.conftest import present
from tests.heuristics.test_stage_orders import random_tables as wide_tables
from tests.random_configs import WITH_NEW, random_optimum_ns, random_tables
from tests.recorded import Cases, as_recorded, digest, recorded


def first(search: ConfigSearch, below_ns: int) -> State | None:
    starts = (search.start(order, below_ns) for order in search.first_orders)
    return next((state for state in starts if state is not None), None)


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 80), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_plans_are_the_recorded_ones_and_get_better(
    seeds: range, schedule: ScheduleName | None
) -> None:
    """A start, what a descent makes of it, and orders near that; none is below the optimum."""
    figures: dict[str, object] = {}
    for seed in seeds:
        zones = seed % 5 == 0
        search = ConfigSearch(random_tables(seed, zones, schedule), PathPool())
        best_ns, start = random_optimum_ns(seed, zones, schedule), first(search, LONGEST_NS)
        if start is None:
            continue
        assert search.descend(start, lambda: True) == start
        near = list(search.improvements(start, Random(0), 20, lambda: False))
        times = [state.step_time_ns for state in (start, *near)]
        assert best_ns is not None
        assert times == sorted(times, reverse=True)
        assert times[-1] >= best_ns
        states = [first(search, best_ns), start, search.descend(start, lambda: False), near[-1]]
        figures[f"{seed} {schedule}"] = [
            state and [*state.order, *state.shares, *state.split, state.step_time_ns]
            for state in states
        ]
    if seeds[0] == 0:
        as_recorded("config_search", figures)


@pytest.mark.parametrize("uneven", [False, True])
@recorded("config_search")
def test_plans_of_many_layers_and_nodes_are_the_recorded_ones(uneven: bool) -> Cases:
    """Four stages of four nodes of three kinds, orders of which many are near."""
    for seed in range(5):
        tables = wide_tables(seed)
        instance = tables.instance
        if uneven:
            instance = instance.but(
                search={"micro_batches": "uneven"}, workload={"global_batch": 24}
            )
        search = ConfigSearch(build_tables(instance, tables.config), PathPool())
        start = present(first(search, LONGEST_NS))
        found = list(search.improvements(start, Random(seed), 16, lambda: False))[-1]
        yield (
            f"wide {seed} {uneven}",
            [
                [*state.order, *state.shares, *state.split, state.step_time_ns]
                for state in (start, search.descend(start, lambda: False), found)
            ],
        )


def test_near_splits_are_all_moves_of_one_layer() -> None:
    """2 + 1 + 3 layers: six moves, of which those that empty the middle stage are left out."""
    # sizes 1 2 3, 1 1 4, 3 1 2, 2 2 2 remain; 3 0 3 and 2 0 4 do not
    found = {tuple(split) for split in near_splits(np.array([0, 2, 3, 6])).tolist()}
    assert found == {(0, 1, 3, 6), (0, 1, 2, 6), (0, 3, 4, 6), (0, 2, 4, 6)}


@recorded("neighbours")
def test_orders_splits_and_shares_are_the_recorded_ones() -> Cases:
    """Of which the first one seen is 2 + 2 nodes: two runs."""
    assert start_orders((2, 2)) == [(0, 0, 1, 1), (1, 1, 0, 0)]
    for used, per_stage in product([(2, 2), (6, 3), (3, 3), (7, 2, 4), (1, 0, 9)], (1, 2, 3)):
        starts, turned = start_orders(used), turned_orders(used, per_stage, 4)
        near = islice(near_orders(starts[-1], per_stage, Random(0)), 60)
        orders = [starts, turned, list(near)]
        yield f"orders {used} {per_stage}", [[len(each), digest(each)] for each in orders]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        times = rng.integers(1, 30, (3, 4))
        kinds: Kinds = [((int(j), 4),) for j in rng.integers(0, 3, 5)]
        times[:, 1] = times[:, seed % 3]
        split = (0, *rng.choice(np.arange(1, 12), 4, replace=False).cumsum().tolist(), 60)
        shares = fair_shares(times, 4 + 3 * seed)
        yield f"shares {seed}", shares
        yield (
            f"permuted {seed}",
            [permuted(kinds, after, split) for after in (kinds[::-1], [*kinds[1:], ((0, 4),)])],
        )
