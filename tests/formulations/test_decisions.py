"""Ranges that the plan space leaves for decisions, held against every plan of tiny configs."""

from dataclasses import replace

import pytest

from formulations.decisions import (
    PathCut,
    decisions_of,
    even_shares,
    least_ends,
    only_order,
    possible_starts,
    share_range,
)
from tests import brute_force
from tests.best_plans import random_decisions
from tests.random_configs import random_tables
from tests.recorded import as_recorded


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_ranges_are_those_of_all_plans(seed: int) -> None:
    tables = random_tables(seed)
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


def test_ranges_are_the_recorded_ones() -> None:
    """Shares below a largest one: of 10 for 3, none above 4, the third has at least 10 - 2 x 4."""
    tables = random_tables(0)
    instance = tables.instance.but(workload={"global_batch": 10 * tables.config.micro_batch})
    ten = replace(tables, instance=instance, config=tables.config.but(dp=3))
    assert [*share_range(ten, 4)] == [2, 3, 4]
    figures: dict[str, object] = {"ten": [[*share_range(ten, most)] for most in (None, 4, 3)]}
    for seed in range(24):
        tables = random_tables(seed)
        starts = sorted(map(list, possible_starts(tables)))
        shares = list(even_shares(tables)), [*share_range(tables, 3)]
        order = only_order(tables)
        figures[f"{seed}"] = [starts, *shares, order and list(order), list(least_ends(tables))]
    as_recorded("decisions", figures)


def test_decisions_of_their_plan() -> None:
    for seed in range(0, 40, 4):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        assert decisions_of(tables.instance, made.plan(tables)) == made


def test_blocking_sends_count_with_the_passes_that_wait_for_them() -> None:
    """Of forwards before a boundary and backwards behind it: 1 + 50 and 2 + 60."""
    cut = PathCut(2, 0, operations=((1, 2, 3), (40, 50, 60)), transfers=(7, 8))
    assert (cut.sends(blocking=True), cut.sends(blocking=False)) == ((51, 62), (7, 8))
