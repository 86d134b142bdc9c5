"""The micro-batch models, CP-SAT and MILP: exactly the shares that there are, within memory."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Given, share_range
from formulations.models.microbatches import Shares
from formulations.models.node_order import FixedOrder, FreeOrder, Order
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.loop_checks import need_bytes
from tests.random_configs import random_tables
from tests.seeds import few_and_many
from tests.twins import TWINS, Twin, all_solutions, has_solution

SEEDS = few_and_many(range(0, 160, 4), 3)


def several_replicas(seeds: Sequence[int]) -> list[CostTables]:
    """Random tables with uneven shares and more than one replica."""
    known = [random_tables(seed) for seed in seeds]
    return [
        tables
        for tables in known
        if tables.config.dp > 1 and tables.instance.search.micro_batches == "uneven"
    ]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_solutions_are_the_shares_of_equal_replicas_descending(
    twin: Twin, seeds: Sequence[int]
) -> None:
    """(9) to (11) Equal columns count once, different ones apart; all of them in a free order."""
    for tables in several_replicas(seeds):
        orders: list[Order] = [FixedOrder(tables, o) for o in brute_force.all_orders(tables)[:2]]
        for order in (*orders, FreeOrder(twin.model(), tables)):
            model, columns = twin.model(), [order.column(r) for r in range(tables.config.dp)]
            part = Shares(model, tables, order, share_range(tables))
            expected = [
                shares
                for shares in brute_force.all_shares(tables)
                if all(
                    shares[r] >= shares[s]
                    for r, s in combinations(range(tables.config.dp), 2)
                    if columns[r] == columns[s]
                )
            ]
            assert all_solutions(model, part) == sorted(expected)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_share_is_limited_by_memory(twin: Twin, seeds: Sequence[int]) -> None:
    """(2) As many micro-batches as a replica can hold, not one more; too few for all: no plan."""
    for tables in several_replicas(seeds):
        order = brute_force.all_orders(tables)[0]
        boundaries = next(brute_force.all_splits(tables))
        shares = brute_force.all_shares(tables)
        need = min(need_bytes(tables, boundaries, share) for share in shares)
        enough = -(-tables.num_micro_batches // tables.config.dp)
        for room, largest in (
            (need, None),
            (need - 1, None),
            (1 << 60, enough),
            (1 << 60, enough - 1),
        ):
            roomy = replace(tables, capacity_bytes=np.full(2, room))
            given = Given(order=order, boundaries=boundaries, largest_share=largest)
            built = OneConfig(twin.model(), roomy, given)
            assert has_solution(built.model) == (room >= need and largest in (None, enough))
