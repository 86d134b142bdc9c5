"""The micro-batch model: exactly the shares that there are, within memory."""

from dataclasses import replace

import numpy as np
import pytest
from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.microbatches import ShareVariables, build
from formulations.cpsat.node_order import OrderVariables
from formulations.decisions import share_range
from formulations.fixed import FixedOrder
from solver.result import Status
from tests import brute_force
from tests.engine import all_solutions, solved
from tests.random_shapes import crowded_instance, random_tables


def several_replicas() -> list[CostTables]:
    """Random tables with uneven shares and more than one replica."""
    known = [random_tables(seed) for seed in range(0, 160, 4)]
    return [
        tables
        for tables in known
        if tables.shape.dp > 1 and tables.instance.search.micro_batches == "uneven"
    ]


def of_batch(batch: int, dp: int) -> CostTables:
    """Tables with this number of micro-batches and replicas."""
    tables = random_tables(0)
    workload = crowded_instance(0).workload.model_copy(update={"global_batch": batch})
    return replace(
        tables,
        instance=tables.instance.model_copy(update={"workload": workload}),
        shape=tables.shape.model_copy(update={"dp": dp}),
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


def test_solutions_are_the_shares() -> None:
    """(9) and (10) admit every distribution once where replicas may differ."""
    for tables in several_replicas():
        model = cp_model.CpModel()
        order = OrderVariables(cp_model.CpModel(), tables)
        shares = ShareVariables(model, tables, order, share_range(tables))
        assert all_solutions(model, shares.extract) == sorted(brute_force.all_shares(tables))


def test_equal_replicas_get_descending_shares() -> None:
    """(11) Replicas with equal columns count once, those with different ones apart."""
    for tables in several_replicas():
        for nodes in brute_force.all_orders(tables):
            order = FixedOrder(tables, nodes)
            model = cp_model.CpModel()
            part = ShareVariables(model, tables, order, share_range(tables))
            classes = [order.column(r) for r in range(tables.shape.dp)]

            def kept(share: tuple[int, ...], classes: list[object]) -> bool:
                return all(
                    share[r] >= share[s]
                    for s in range(len(share))
                    for r in range(s)
                    if classes[r] == classes[s]
                )

            expected = [m for m in brute_force.all_shares(tables) if kept(m, list(classes))]
            assert all_solutions(model, part.extract) == sorted(expected)


@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
def test_share_is_limited_by_memory(spare: int, feasible: bool) -> None:
    """(2) A replica gets as many micro-batches as it can hold, and not one more."""
    for tables in several_replicas():
        order = brute_force.all_orders(tables)[0]
        boundaries = next(brute_force.all_splits(tables))
        stages = range(tables.shape.pp)
        need = min(
            max(
                tables.stage_memory(boundaries[k], boundaries[k + 1], k, m)
                for k in stages
                for m in share
            )
            for share in brute_force.all_shares(tables)
        )
        roomy = replace(tables, capacity_bytes=np.full(2, need + spare))
        outcome = solved(build(roomy, order, boundaries).model)
        assert outcome.status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)


def test_too_small_a_largest_share_is_infeasible() -> None:
    """The model says so itself if the micro-batches do not fit."""
    tables = several_replicas()[0]
    order = brute_force.all_orders(tables)[0]
    boundaries = next(brute_force.all_splits(tables))
    enough = -(-tables.num_micro_batches // tables.shape.dp)
    roomy = replace(tables, capacity_bytes=np.full(2, 1 << 60))
    assert solved(build(roomy, order, boundaries, enough).model).status is Status.OPTIMAL
    assert solved(build(roomy, order, boundaries, enough - 1).model).status is Status.INFEASIBLE
