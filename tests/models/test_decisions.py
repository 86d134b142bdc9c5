"""Ranges that the plan space leaves for decisions, held against every plan of tiny configs."""

import pytest

from formulations.decisions import (
    boundary_ranges,
    decisions_of,
    even_shares,
    largest_start,
    least_end,
    only_order,
    possible_starts,
    share_range,
)
from tests import brute_force
from tests.loop_checks import random_decisions
from tests.random_configs import random_tables


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_ranges_are_those_of_all_plans(seed: int) -> None:
    """Boundaries, starts of nodes and shares: the least and the largest that some plan has."""
    tables = random_tables(seed)
    splits = list(brute_force.all_splits(tables))
    inner = [{split[k] for split in splits} for k in range(1, tables.config.num_stages)]
    ranges = boundary_ranges(tables)[1 : tables.config.num_stages]
    assert [(min(ends), max(ends)) for ends in inner] == ranges
    shares = {share for each in brute_force.all_shares(tables) for share in each}
    assert {*even_shares(tables)} <= shares or not shares
    if tables.instance.search.micro_batches == "uneven":
        assert shares == {*share_range(tables)}
    orders, sizes, starts = brute_force.all_orders(tables), tables.slots_per_node, set()
    for order in orders:
        starts |= {(j, sum(sizes[i] for i in order[:n])) for n, j in enumerate(order)}
    assert {*possible_starts(tables)} == starts
    assert (only_order(tables) is not None) == (
        len([n for n in tables.config.nodes_used if n]) == 1
    )


@pytest.mark.parametrize("seed", range(0, 30, 7))
def test_ends_and_starts_leave_enough_blocks(seed: int) -> None:
    """One layer less has too few blocks, or there is no such end or start at all."""
    tables = random_tables(seed)
    layers, blocks = tables.num_layers, tables.blocks_before.tolist()
    for start in range(layers):
        ends = [e for e in range(start + 1, layers + 1) if blocks[e] - blocks[start] >= 1]
        if tables.min_blocks == 1:
            assert least_end(tables, start) == min(ends, default=layers + 1)
    for end in range(1, layers + 1):
        starts = [s for s in range(end) if blocks[end] - blocks[s] >= 1]
        if tables.min_blocks == 1:
            assert largest_start(tables, end) == max(starts, default=-1)


def test_shares_below_a_largest_one() -> None:
    """Of M micro-batches on R replicas none exceeds it, and what is left for one is no less."""
    tables = random_tables(0)
    total, dp = tables.num_micro_batches, tables.config.dp
    free = share_range(tables)
    assert (free.start, free.stop) == (max(1, total - (dp - 1) * (total - dp + 1)), total - dp + 2)
    assert share_range(tables, 1).stop == 2
    assert not share_range(tables, 0)


def test_decisions_of_their_plan() -> None:
    """A plan holds its decisions."""
    for seed in range(0, 40, 4):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        assert decisions_of(tables.instance, made.plan(tables)) == made
