"""The witness itself, held against counts and times worked out by hand."""

from math import comb

import pytest

from formulations.costs.tables import build_tables
from tests import brute_force, recursion
from tests.random_configs import crowded_instance
from tests.small_instances import plain_config


@pytest.mark.parametrize(
    ("blocking", "ends"),
    [
        # Stage 0: F0 0-2, F1 2-4. Stage 1: F0 3-6, B0 6-11, F1 11-14, B1 14-19. Stage 0: B0 12-16
        # (arrives 12), B1 20-24 (arrives 20).
        (False, [24, 19]),
        # Stage 0: F0 0-3, F1 3-6. Stage 1: F0 3-6, B0 6-12, F1 12-15, B1 15-21. Stage 0: B0 12-16,
        # B1 21-25.
        (True, [25, 21]),
    ],
)
def test_pipeline_of_two_stages(blocking: bool, ends: list[int]) -> None:
    """1F1B, two stages, two micro-batches, by hand: f = 2, 3; b = 4, 5; transfer 1."""
    assert recursion.stage_ends("1f1b", 2, [2, 3], [4, 5], [1], blocking=blocking) == ends


def test_number_of_orders_splits_and_shares() -> None:
    """Two nodes of one group and one of another stand in 3! / 2! = 3 different orders.

    The embedding stays with the first of four blocks and the head with the last: C(3, 2) splits
    into 3 stages. Six micro-batches on two replicas, at least one each: 5 ways.
    """
    instance = next(
        instance
        for instance in map(crowded_instance, range(1000))
        if all(g.gpus_per_node == 2 for g in instance.cluster.groups)
        and instance.workload.global_batch == 6
        and not instance.search.embedding_only_stages
    )
    tables = build_tables(instance, plain_config((2, 1), tp=1, dp=2, pp=3))
    assert brute_force.all_orders(tables) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len(list(brute_force.all_splits(tables))) == comb(3, 2)
    assert len(list(brute_force.all_shares(tables))) == 5
