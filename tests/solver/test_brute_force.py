"""The witness itself, held against counts and times worked out by hand."""

from math import comb

from formulations.costs.tables import CostTables, build_tables
from tests import brute_force, recursion
from tests.random_configs import crowded_instance, random_tables
from tests.small_instances import plain_config


def crowded_tables(tp: int, dp: int, pp: int) -> CostTables:
    """All three nodes of an instance whose nodes have two GPUs each."""
    seed = next(
        seed
        for seed in range(1000)
        if all(g.gpus_per_node == 2 for g in crowded_instance(seed).cluster.groups)
        and crowded_instance(seed).workload.global_batch == 6
        and not crowded_instance(seed).search.embedding_only_stages
    )
    config = plain_config((2, 1), tp=tp, dp=dp, pp=pp)
    return build_tables(crowded_instance(seed), config)


def test_pipeline_of_two_stages() -> None:
    """1F1B, two stages, two micro-batches, by hand."""
    # f = 2, 3; b = 4, 5; transfer 1. Stage 0: F0 0-2, F1 2-4. Stage 1: F0 3-6, B0 6-11, F1 11-14,
    # B1 14-19. Stage 0: B0 12-16 (arrives 12), B1 20-24 (arrives 20).
    assert recursion.stage_ends("1f1b", 2, [2, 3], [4, 5], [1]) == [24, 19]


def test_blocking_pipeline_of_two_stages() -> None:
    """The same with sends that keep the sender busy."""
    # Stage 0: F0 0-3, F1 3-6. Stage 1: F0 3-6, B0 6-12, F1 12-15, B1 15-21. Stage 0: B0 12-16,
    # B1 21-25.
    assert recursion.stage_ends("1f1b", 2, [2, 3], [4, 5], [1], blocking=True) == [25, 21]


def test_number_of_orders() -> None:
    """Two nodes of one group and one of another stand in 3! / 2! = 3 different orders."""
    assert brute_force.all_orders(crowded_tables(1, 2, 3)) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]


def test_number_of_splits() -> None:
    """Embedding, four blocks, head: as many splits into 3 stages as of the 4 blocks, C(3, 2)."""
    # The embedding stays with the first block and the head with the last.
    assert len(list(brute_force.all_splits(crowded_tables(1, 2, 3)))) == comb(3, 2)


def test_number_of_shares() -> None:
    """Six micro-batches on two replicas, at least one each: 5 ways."""
    assert len(list(brute_force.all_shares(crowded_tables(1, 2, 3)))) == 5


def test_optimum_over_less_is_no_better() -> None:
    """Fixing a part of the plan cannot shorten the best step."""
    for seed in range(0, 40, 4):
        tables = random_tables(seed)
        best = brute_force.optimum_ns(tables)
        for order in brute_force.all_orders(tables):
            found = brute_force.optimum_ns(tables, orders=[order])
            assert found is None or (best is not None and best <= found)
