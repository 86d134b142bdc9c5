"""Node orders that are tried; lower bounds of the step time of a split."""

from itertools import permutations, product

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.space import configs
from solver.heuristics.balance import SplitSpace
from solver.heuristics.baselines import fitting_even_split
from solver.heuristics.node_orders import best_plan, compute_bound_ns, count_orders, node_orders
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
