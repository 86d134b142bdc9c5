"""The micro-batch models, CP-SAT and MILP: exactly the shares that there are, within memory."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Given, share_range
from formulations.models.microbatches import Shares
from formulations.models.node_order import FixedOrder, FreeOrder
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.loop_checks import need_bytes
from tests.random_configs import crowded_instance, random_tables
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


def of_batch(batch: int, dp: int) -> CostTables:
    """Tables with this number of micro-batches and replicas."""
    tables = random_tables(0)
    workload = crowded_instance(0).workload.but(global_batch=batch)
    return replace(
        tables,
        instance=tables.instance.but(workload=workload),
        config=tables.config.but(dp=dp),
    )


def test_range_without_limit() -> None:
    """Of 10 micro-batches one of 3 replicas may have 8, as the others need one each."""
    assert share_range(of_batch(10, 3)) == range(1, 9)


def test_range_with_limit() -> None:
    """If none has more than 4 of 10, the third has at least 10 - 2 x 4 = 2."""
    assert share_range(of_batch(10, 3), 4) == range(2, 5)


def test_range_of_too_small_a_limit_is_empty() -> None:
    """Three replicas with at most 3 each cannot take 10."""
    assert not share_range(of_batch(10, 3), 3)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_solutions_are_the_shares(twin: Twin, seeds: Sequence[int]) -> None:
    """(9) and (10) admit every distribution once where replicas may differ."""
    for tables in several_replicas(seeds):
        model = twin.model()
        order = FreeOrder(twin.model(), tables)
        shares = Shares(model, tables, order, share_range(tables))
        assert all_solutions(model, shares) == sorted(brute_force.all_shares(tables))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_equal_replicas_get_descending_shares(twin: Twin, seeds: Sequence[int]) -> None:
    """(11) Replicas with equal columns count once, those with different ones apart."""
    for tables in several_replicas(seeds):
        for nodes in brute_force.all_orders(tables):
            order = FixedOrder(tables, nodes)
            model = twin.model()
            part = Shares(model, tables, order, share_range(tables))
            classes = [order.column(r) for r in range(tables.config.dp)]

            def kept(share: tuple[int, ...], classes: list[object]) -> bool:
                return all(
                    share[r] >= share[s]
                    for s in range(len(share))
                    for r in range(s)
                    if classes[r] == classes[s]
                )

            expected = [m for m in brute_force.all_shares(tables) if kept(m, list(classes))]
            assert all_solutions(model, part) == sorted(expected)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
@pytest.mark.parametrize("seeds", SEEDS)
def test_share_is_limited_by_memory(
    twin: Twin, seeds: Sequence[int], spare: int, feasible: bool
) -> None:
    """(2) A replica gets as many micro-batches as it can hold, and not one more."""
    for tables in several_replicas(seeds):
        order = brute_force.all_orders(tables)[0]
        boundaries = next(brute_force.all_splits(tables))
        shares = brute_force.all_shares(tables)
        need = min(need_bytes(tables, boundaries, share) for share in shares)
        roomy = replace(tables, capacity_bytes=np.full(2, need + spare))
        built = OneConfig(twin.model(), roomy, Given(order=order, boundaries=boundaries))
        assert has_solution(built.model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_too_small_a_largest_share_is_infeasible(twin: Twin) -> None:
    """The model says so itself if the micro-batches do not fit."""
    tables = several_replicas(range(0, 40, 4))[0]
    order = brute_force.all_orders(tables)[0]
    boundaries = next(brute_force.all_splits(tables))
    enough = -(-tables.num_micro_batches // tables.config.dp)
    roomy = replace(tables, capacity_bytes=np.full(2, 1 << 60))
    for most in (enough, enough - 1):
        given = Given(order, boundaries, largest_share=most)
        assert has_solution(OneConfig(twin.model(), roomy, given).model) == (most == enough)
