"""Min-max splits against hand computation and brute force."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import split_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.instance import SearchSpace
from formulations.space import shapes
from solver.heuristics.balance import Balance, Split, SplitSpace, order_balance
from solver.heuristics.baselines import even_split, minmax_of, moved
from solver.heuristics.node_orders import Order, node_orders
from tests.chain_instances import FAST, SLOW, all_splits, chain_instance, chain_tables
from tests.seeds import few_and_many
from tests.small_instances import random_instance

pytestmark = pytest.mark.usefixtures("round_times")

MS = 1_000_000


def split_of(tables: CostTables) -> Split | None:
    """Min-max split with the nodes in the order listed."""
    order = range(len(tables.shape.nodes_used))
    return minmax_of(order_balance(SplitSpace(tables), order, even_shares(tables)))


def random_cases(seeds: Sequence[int]) -> Iterator[tuple[Order, Balance]]:
    """Every shape and order of tiny instances."""
    for seed in seeds:
        instance = random_instance(seed)
        for shape in shapes(instance):
            tables = build_tables(instance, shape)
            shares = even_shares(tables)
            for order in node_orders(shape.nodes_used, 6):
                yield order, order_balance(SplitSpace(tables), order, shares)


def valid(costs: Balance, split: Split) -> bool:
    """Whether every stage has its blocks and its memory."""
    return all(costs.allowed(k, *stage) for k, stage in enumerate(pairwise(split)))


def test_even_split_gives_the_last_stage_the_first_layer_left_over() -> None:
    """7 blocks and 2 ends on 4 stages: 9 = 2 + 2 + 2 + 3."""
    tables = chain_tables(chain_instance([1] * 7, [SLOW] * 4))
    assert even_split(tables) == (0, 2, 4, 6, 9)


def test_even_split_gives_further_layers_left_over_to_the_first_stages() -> None:
    """9 blocks and 2 ends on 4 stages: 11 = 3 + 3 + 2 + 3."""
    tables = chain_tables(chain_instance([1] * 9, [SLOW] * 4))
    assert even_split(tables) == (0, 3, 6, 8, 11)


def test_even_split_leaves_every_stage_a_block() -> None:
    """Two layers without a block in front: the second stage gives its first block away."""
    instance = chain_instance([1, 1], [SLOW] * 2)
    first = instance.workload.layer_runs[0]
    tables = chain_tables(
        instance.but(workload={"layer_runs": (first, *instance.workload.layer_runs)})
    )
    assert even_split(tables) == (0, 3, 5)


def test_even_split_may_leave_a_stage_without_a_block_if_allowed() -> None:
    """3 layers on 2 stages are 1 + 2: the embedding stands alone."""
    search = SearchSpace(embedding_only_stages=True)
    tables = chain_tables(chain_instance([1], [SLOW] * 2, search))
    assert even_split(tables) == (0, 1, 3)


def test_even_split_refuses_more_stages_than_blocks() -> None:
    """One block cannot be on two stages."""
    with pytest.raises(ValueError, match="too few"):
        even_split(chain_tables(chain_instance([1], [SLOW] * 2)))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [(0, 2, (0, 1, 3, 6)), (2, 0, (0, 3, 5, 6)), (1, 2, (0, 2, 3, 6))],
)
def test_moving_a_layer_shifts_the_stages_between(
    source: int, target: int, expected: Split
) -> None:
    """Sizes 2, 2, 2 become 1, 2, 3; 3, 2, 1; and 2, 1, 3."""
    assert moved((0, 2, 4, 6), source, target) == expected


def test_layers_move_to_the_faster_node_until_stages_are_level() -> None:
    """6 blocks of 2 GFLOPs, 3 ms or 6 ms each: from 3 | 3 (9, 18 ms) to 4 | 2 (12, 12 ms)."""
    tables = chain_tables(chain_instance([2] * 6, [FAST, SLOW]))
    assert split_of(tables) == (0, 5, 8)


def test_stage_time_is_that_of_the_slowest_replica() -> None:
    """Stage 0 on fast and slow, stage 1 on two slow nodes: level as if all were slow."""
    tables = chain_tables(chain_instance([2] * 4, [FAST, SLOW, SLOW, SLOW]), dp=2)
    costs = order_balance(SplitSpace(tables), range(4), (2, 2))
    assert costs.times_ns((0, 3, 6)) == [12 * MS, 12 * MS]
    assert split_of(tables) == (0, 3, 6)


def test_bug_the_last_bad_move_is_not_kept() -> None:
    """[e 4 2 | 3 3 | 1 1 h] takes 18, 18, 6 ms.

    One layer from stage 0 to 2: [e 4 | 2 3 | 3 1 1 h] takes 12, 15, 15. Then one from stage 1
    to 0 would be [e 4 2 | 3 | ...], 18, 9, 15: worse, so that the split before it is returned.
    """
    tables = chain_tables(chain_instance([4, 2, 3, 3, 1, 1], [SLOW] * 3))
    assert even_split(tables) == (0, 3, 5, 8)
    assert split_of(tables) == (0, 2, 4, 8)


def test_moves_that_keep_the_maximum_end_when_a_split_comes_back() -> None:
    """3 equal blocks on 2 equal stages: 1 | 2 becomes 2 | 1, and 1 | 2 is not tried again."""
    tables = chain_tables(chain_instance([1] * 3, [SLOW] * 2))
    assert split_of(tables) == (0, 3, 5)


def test_a_full_stage_is_passed_over() -> None:
    """The second node is the fastest but full, so the third takes the layer.

    Weights, gradients and Adam state of a layer are 180 MB, and its activations 10 MB, here for
    2 micro-batches: beside the reserve of 1 GiB, 1.45 GiB have room for 2 layers (400 of 483 MB).
    """
    small, quick = ("small", 8.0, 1.45), ("quick", 8.0, 8.0)
    tables = chain_tables(chain_instance([2] * 7, [SLOW, small, quick]))
    # Even, 3 + 3 + 3 layers, does not fit; the nearest that does is 3 + 2 + 4: 12, 3 and 4.5 ms.
    # Then 2 + 2 + 5: 6, 3 and 6 ms.
    assert split_of(tables) == (0, 2, 4, 9)


@pytest.mark.parametrize("nodes", [[SLOW] * 2, [FAST, SLOW], [SLOW, FAST], [SLOW, FAST, SLOW]])
@pytest.mark.parametrize("blocks", range(3, 10))
def test_equal_blocks_reach_the_least_maximum(
    nodes: list[tuple[str, float, float]], blocks: int
) -> None:
    """With equal blocks and room for all, the largest stage time is the least of all splits."""
    tables = chain_tables(chain_instance([1] * blocks, nodes))
    costs = order_balance(SplitSpace(tables), range(len(nodes)), (4,))
    least = min(
        max(costs.times_ns(split))
        for split in all_splits(tables.num_layers, len(nodes))
        if valid(costs, split)
    )
    split = minmax_of(costs)
    assert split is not None
    assert max(costs.times_ns(split)) == least


def test_stage_times_and_memory_are_those_of_the_plan() -> None:
    """Equal to `split_costs` on every split of tiny instances."""
    for order, costs in random_cases(range(12)):
        placement = Placer(costs.space.tables).costs(order)
        for split in all_splits(costs.space.tables.num_layers, costs.space.tables.shape.pp):
            plan = split_costs(costs.space.tables, placement, split, costs.shares)
            work = (plan.forward_ns + plan.backward_ns).max(axis=1)
            assert costs.times_ns(split) == work.tolist()
            fits = (plan.memory_bytes <= plan.limit_bytes).all(axis=1).tolist()
            stages = enumerate(pairwise(split))
            assert [bool(end <= costs.farthest[k, start]) for k, (start, end) in stages] == fits


def test_minmax_finds_a_split_if_and_only_if_one_fits() -> None:
    """Tiny instances, some with too little memory for the even or any split."""
    seen = set()
    for _, costs in random_cases(range(60)):
        tables = costs.space.tables
        splits = all_splits(tables.num_layers, tables.shape.pp)
        possible = any(valid(costs, split) for split in splits)
        found = minmax_of(costs)
        assert (found is not None) == possible
        assert found is None or valid(costs, found)
        seen.add((possible, valid(costs, even_split(tables))))
    assert seen == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("seeds", few_and_many(range(60), 4))
def test_minmax_is_never_slower_than_the_even_split(seeds: Sequence[int]) -> None:
    """Largest stage time, wherever the even split fits."""
    for _, costs in random_cases(seeds):
        even = even_split(costs.space.tables)
        if valid(costs, even):
            found = minmax_of(costs)
            assert found is not None
            assert max(costs.times_ns(found)) <= max(costs.times_ns(even))
