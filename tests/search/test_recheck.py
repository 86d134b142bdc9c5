"""The rules that every plan of an engine is held against, each just inside and just outside."""

from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from solver.search.critical_path import broken_rule
from tests import brute_force
from tests.loop_checks import judge, need_bytes
from tests.random_shapes import random_tables


def several() -> CostTables:
    """Tables of two groups, several stages and replicas, uneven shares, room for everything."""
    tables = next(
        tables
        for tables in map(random_tables, range(0, 400, 4))
        if tables.shape.nodes_used == (2, 1) and tables.shape.pp > 1 and tables.shape.dp > 1
    )
    return replace(tables, capacity_bytes=np.full(2, 1 << 60))


def test_every_plan_passes() -> None:
    """Orders, splits and shares of the plan space break no rule, unless memory is short."""
    for seed in range(0, 40, 3):
        tables = random_tables(seed)
        for decisions in brute_force.all_decisions(tables):
            fits = judge(tables, decisions) is not None
            assert (broken_rule(tables, decisions) is None) == fits


@pytest.mark.parametrize("order", [(0, 1), (0, 0, 0), (0, 0, 1, 1), (0, 1, 1)])
def test_order_uses_every_node_once(order: tuple[int, ...]) -> None:
    """Two nodes of group 0 and one of group 1: no fewer, no more, no others."""
    tables = several()
    made = next(brute_force.all_decisions(tables))
    assert "node order" in (broken_rule(tables, replace(made, order=order)) or "")


def test_boundaries_make_stages() -> None:
    """No stage is empty, none is missing, and all layers are on one."""
    tables = several()
    made = next(brute_force.all_decisions(tables))
    p, layers = tables.shape.pp, tables.num_layers
    for wrong in (
        (0, *[1] * (p - 1), 1),
        (0, *[0] * (p - 1), layers),
        (1, *made.boundaries[1:]),
        made.boundaries[:-1],
        (0, *[layers] * (p - 1), layers),
    ):
        assert "boundaries" in (broken_rule(tables, replace(made, boundaries=wrong)) or "")


def test_stage_needs_a_block() -> None:
    """A stage of the embedding alone is none, unless the instance allows it."""
    tables = several()
    made = next(brute_force.all_decisions(tables))
    p, layers = tables.shape.pp, tables.num_layers
    alone = replace(made, boundaries=(0, *range(1, p), layers))
    for allowed in (True, False):
        instance = tables.instance.but(search={"embedding_only_stages": allowed})
        assert (broken_rule(replace(tables, instance=instance), alone) is None) == allowed


def test_shares_distribute_the_micro_batches() -> None:
    """Every replica has at least one micro-batch, and all together have all."""
    tables = several()
    made = next(brute_force.all_decisions(tables))
    total, dp = tables.num_micro_batches, tables.shape.dp
    for wrong in (
        (total, *[0] * (dp - 1)),
        (total + 1, *made.micro_batches[1:]),
        made.micro_batches[1:],
    ):
        assert "shares" in (broken_rule(tables, replace(made, micro_batches=wrong)) or "")


def test_even_shares_are_equal() -> None:
    """Where the instance wants even shares, uneven ones are none."""
    tables = several()
    even = replace(tables, instance=tables.instance.but(search={"micro_batches": "even"}))
    for made in brute_force.all_decisions(tables):
        assert (broken_rule(even, made) is None) == (len(set(made.micro_batches)) == 1)


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_memory_to_the_byte(spare: int, fits: bool) -> None:
    """The largest need of a plan fits a GPU of that size, not one of a byte less."""
    tables = several()
    for made in list(brute_force.all_decisions(tables))[::7]:
        need = need_bytes(tables, made.boundaries, made.micro_batches)
        tight = replace(tables, capacity_bytes=np.full(2, need + spare))
        assert (broken_rule(tight, made) is None) == fits
