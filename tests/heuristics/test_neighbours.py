"""Moves of the local search: orders stay permutations, shares keep their sum."""

from itertools import islice, product
from random import Random

import numpy as np

from solver.heuristics.balance import Kinds
from solver.heuristics.neighbours import (
    fair_shares,
    near_orders,
    near_splits,
    permuted,
    start_orders,
    turned_orders,
)
from tests.recorded import Cases, digest, recorded


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
