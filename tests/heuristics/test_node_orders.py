"""Node orders that are tried; lower bounds of the step time of a split."""

from itertools import combinations, pairwise, permutations, product
from random import Random

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.space import configs
from solver.heuristics.balance import Split, SplitSpace
from solver.heuristics.baselines import fitting_even_split
from solver.heuristics.node_orders import (
    best_plan,
    compute_bound_ns,
    count_orders,
    nearest_split,
    node_orders,
)
from solver.simulate import step_time_ns
from tests.chain_instances import all_splits
from tests.recorded import Cases, recorded, summary
from tests.small_instances import random_instance


@pytest.mark.parametrize("nodes_used", [(1,), (3,), (1, 3), (2, 2), (0, 2), (1, 2, 2)])
def test_all_distinct_orders_are_given_in_lexicographic_order(nodes_used: tuple[int, ...]) -> None:
    listed = [j for j, count in enumerate(nodes_used) for _ in range(count)]
    expected = sorted(set(permutations(listed)))
    assert list(node_orders(nodes_used, 1000)) == expected
    assert count_orders(nodes_used) == len(expected)


def test_nearest_split_is_the_nearest_of_all() -> None:
    """Of all splits with ends that are allowed, boundary by boundary; None where there is none."""
    target, inner = (0, 2, 4, 7), list(combinations(range(1, 7), 2))
    for seed in range(60):
        rng = Random(seed)
        lows = {(k, a): rng.randint(a + 1, min(a + 3, 8)) for k, a in product(range(3), range(8))}
        ends = {place: range(low, rng.randint(low, 8)) for place, low in lows.items()}
        splits = [(0, *cuts, 7) for cuts in inner]
        allowed = [
            s for s in splits if all(b in ends[k, a] for k, (a, b) in enumerate(pairwise(s)))
        ]
        nearest = min(allowed, key=lambda s: distances(s, target), default=None)
        assert nearest_split(target, lambda k, start: ends[k, start]) == nearest  # noqa: B023


def distances(split: Split, target: Split) -> list[tuple[int, int]]:
    return [(abs(end - wanted), end) for end, wanted in zip(split, target, strict=True)]


@recorded("node_orders")
def test_bounds_of_a_split_stay_below_its_step_time_and_are_the_recorded_ones() -> Cases:
    """Compute alone, whatever the transfers and what follows; sums over orders and splits."""
    for seed, schedule in product(range(0, 12, 3), ("", "zb-h1")):
        instance, sums = random_instance(seed), list[int]()
        for config in configs(instance.but(search={"schedule": (schedule,)} if schedule else {})):
            space = SplitSpace(build_tables(instance, config))
            for order in node_orders(config.nodes_used, 6):
                for split in list(all_splits(space.tables.num_layers, config.pp))[:8]:
                    sums.append(compute_bound_ns(space.balance(order), split))
                    assert sums[-1] <= step_time_ns(space.costs(order, split))
        yield f"{seed} {schedule}", summary(np.array(sums))


@recorded("node_orders")
def test_best_plans_of_a_rule_are_the_recorded_ones() -> Cases:
    """Of even splits, or the nearest that fit; none where it is to stop at once.

    Above the limit of 90 orders: 6 rotations of 001122 and of 221100 each.
    """
    yield "above the limit", list(map(list, node_orders((2, 2, 2), 89)))
    for seed in range(12):
        instance = random_instance(seed)
        found = best_plan(instance, configs(instance), fitting_even_split)
        yield f"best {seed}", (found and found[1])
        assert best_plan(instance, configs(instance), fitting_even_split, lambda: True) is None
