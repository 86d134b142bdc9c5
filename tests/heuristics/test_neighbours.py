"""Moves of the local search: orders stay permutations, shares keep their sum."""

from collections import Counter
from itertools import islice
from random import Random

import numpy as np
import pytest

from solver.heuristics.neighbours import (
    fair_shares,
    near_orders,
    near_shares,
    near_splits,
    permuted,
    start_orders,
    striped,
    turned_orders,
)


@pytest.mark.parametrize(("used", "per_stage"), [((4, 3, 5), 3), ((2, 0, 1), 1), ((0, 7, 9), 5)])
def test_all_orders_use_the_same_nodes(used: tuple[int, ...], per_stage: int) -> None:
    """Start orders, turned ones and a thousand neighbours of one; the same for the same seed."""
    nodes = Counter({j: n for j, n in enumerate(used) if n})
    starts = start_orders(used, per_stage)
    near, again = (
        list(islice(near_orders(starts[0], per_stage, Random(1)), 1000)) for _ in range(2)
    )
    for order in [*starts, *turned_orders(used, per_stage, 4), *near]:
        assert Counter(order) == nodes
    assert near == again


def test_orders_by_hand() -> None:
    """2 nodes each of two groups, 2 per stage: two orders of the runs, and one of each a stage."""
    assert start_orders((2, 2), 2) == [(0, 0, 1, 1), (1, 1, 0, 0), (0, 1, 0, 1)]
    assert striped((6, 3), 3) == (0, 0, 1) * 3
    assert striped((3, 3), 3) == (0, 0, 1, 0, 1, 1)  # 1.5 rounds to 2 + 1, then 1 + 2
    assert len(turned_orders((3, 2), 1, 2)) == 10  # 3 + 2 nodes have no more


def test_near_splits_are_all_moves_of_one_layer() -> None:
    """2 + 1 + 3 layers: six moves, of which those that empty the middle stage are left out."""
    # sizes 1 2 3, 1 1 4, 3 1 2, 2 2 2 remain; 3 0 3 and 2 0 4 do not
    found = {tuple(split) for split in near_splits(np.array([0, 2, 3, 6])).tolist()}
    assert found == {(0, 1, 3, 6), (0, 1, 2, 6), (0, 3, 4, 6), (0, 2, 4, 6)}


def test_layers_go_along_with_the_nodes_of_their_stage() -> None:
    """Stages of kinds a a b with 1, 2, 3 layers, as b a a: 3, 1, 2 layers."""
    a, b = ((0, 4),), ((1, 4),)
    assert permuted([a, a, b], [b, a, a], (0, 1, 3, 6)) == (0, 3, 4, 6)
    assert permuted([a, a, b], [b, b, a], (0, 1, 3, 6)) is None


@pytest.mark.parametrize("seed", range(6))
def test_fair_shares_have_the_least_largest_estimate(seed: int) -> None:
    """All ways to give 9 micro-batches to 3 replicas: latency + (m - 1) slowest stage."""
    times = np.random.default_rng(seed).integers(1, 50, (2, 3))
    latency, slowest = times.sum(axis=0), times.max(axis=0)

    def latest(shares: tuple[int, ...]) -> int:
        return int((latency + (np.array(shares) - 1) * slowest).max())

    every = [(a, b, 9 - a - b) for a in range(1, 8) for b in range(1, 9 - a)]
    found = fair_shares(times, 9)
    assert found in every
    assert latest(found) == min(map(latest, every))


def test_near_shares_move_one_micro_batch_from_late_to_early() -> None:
    """Replicas of 1, 2 and 2 ns a micro-batch with 4 each: 4, 8, 8 ns; equal ones once."""
    # late to early: 8 to 4 ns; and with three on each side also back, which is tried last
    found = near_shares(np.array([[1, 2, 2]]), (4, 4, 4))
    assert found[0] == (5, 3, 4)
    assert all(sum(shares) == 12 and min(shares) > 0 for shares in found)
    assert near_shares(np.array([[1, 2]]), (1, 1)) == []
