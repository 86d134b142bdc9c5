"""The micro-batch models, CP-SAT and MILP: exactly the shares that there are, within memory."""

from collections.abc import Sequence
from itertools import combinations

import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, share_range
from formulations.models.microbatches import Shares, shares_part
from formulations.models.model import Solution
from formulations.models.node_order import FixedOrder, FreeOrder, Order
from tests import brute_force
from tests.equal_nodes import equal_nodes
from tests.random_configs import random_tables
from tests.seeds import few_and_many
from tests.twins import CPSAT, TWINS, Twin, all_solutions

SEEDS = few_and_many(range(0, 160, 4), 3)


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


def test_even_shares_leave_no_choice() -> None:
    """Two of the four micro-batches for each of two replicas."""
    tables = equal_nodes(2, 1, 1, 2, 1)
    part = shares_part(CPSAT.model(), tables, FixedOrder(tables, (0, 0)), ALL_FREE)
    assert part.extract(Solution([])) == (2, 2)
