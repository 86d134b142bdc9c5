"""The micro-batch models, CP-SAT and MILP: exactly the shares that there are, within memory."""

from collections.abc import Sequence
from itertools import combinations

import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Given, share_range
from formulations.models.microbatches import Shares
from formulations.models.node_order import FixedOrder, FreeOrder, Order
from tests import brute_force
from tests.random_configs import random_tables
from tests.seeds import few_and_many
from tests.twins import TWINS, Twin, all_solutions, check_sizes

SEEDS = few_and_many(range(0, 160, 4), 6)


def several_replicas(seeds: Sequence[int]) -> list[CostTables]:
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
            least, too_many = share_range(tables).start, share_range(tables).stop
            assert (part.at_least(0, least), part.at_least(0, too_many)) == (1, 0)


def test_models_are_the_recorded_ones() -> None:
    for seed in range(0, 40, 4):
        tables = random_tables(seed)
        split = next(brute_force.all_splits(tables))
        for most in (None, 2):
            given = Given(boundaries=split, largest_share=most)
            check_sizes("microbatches", {f"{seed} {most}": tables}, given)
