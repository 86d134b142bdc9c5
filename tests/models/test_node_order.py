"""The node-order models, CP-SAT and MILP: the orders that there are, at their costs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Given
from formulations.models.layer_to_stage import Split
from formulations.models.node_order import FreeOrder
from tests import brute_force
from tests.random_configs import random_tables
from tests.seeds import few_and_many
from tests.twins import TWINS, Twin, all_solutions, check_sizes, fix, least_values

SEEDS = few_and_many(range(120), 40)


def mixed(seeds: Sequence[int]) -> list[CostTables]:
    known = [random_tables(seed) for seed in seeds]
    return [
        tables
        for tables in known
        if len(tables.config.groups_used) == len(tables.config.nodes_used) == 2
    ]


def in_zones(seeds: Sequence[int]) -> list[CostTables]:
    known = [random_tables(seed, zones=True) for seed in seeds]
    return [tables for tables in known if sum(tables.config.nodes_used) > 1]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_solutions_are_the_orders(twin: Twin, seeds: Sequence[int]) -> None:
    """The constraints (12) to (14) admit every different order, once."""
    for tables in mixed(seeds) + in_zones(seeds):
        model = twin.model()
        order = FreeOrder(model, tables)
        assert all_solutions(model, order) == brute_force.all_orders(tables)


def least_terms(
    twin: Twin, tables: CostTables, order: tuple[int, ...], boundaries: tuple[int, ...]
) -> list[int]:
    """Values of sends, syncs, gathers and embedding when their sum is minimised."""
    model = twin.model()
    part = FreeOrder(model, tables)
    runs = [np.array([run]) for run in pairwise(boundaries)]
    split, config = Split(model, tables, runs), tables.config
    terms = [part.send(k, r, split) for k in range(config.pp - 1) for r in range(config.dp)]
    terms += [part.sync(k, split) for k in range(config.pp)]
    terms += [part.gather(k, split) for k in range(config.pp)]
    terms.append(part.embedding())
    fix(model, part, order)
    return least_values(model, terms)


def counted_terms(
    tables: CostTables, order: tuple[int, ...], boundaries: tuple[int, ...]
) -> list[int]:
    placed = brute_force.place(tables, order)
    stages = [slice(a, b) for a, b in pairwise(boundaries)]
    syncs = [sum(placed.sync[k][own]) + placed.sync_start[k] for k, own in enumerate(stages)]
    gathers = [sum(placed.gather[k][own]) + placed.gather_start[k] for k, own in enumerate(stages)]
    last = [tables.instance.workload.layers[own.stop - 1].output_tensors for own in stages]
    sends = [time[last[s // tables.config.dp]] for s, time in enumerate(placed.send)]
    return [*sends, *syncs, *gathers, placed.embedding]


def test_models_are_the_recorded_ones() -> None:
    for seed in range(0, 24, 2):
        tables = random_tables(seed, zones=seed % 3 == 0)
        split = next(brute_force.all_splits(tables))
        for order in (None, brute_force.all_orders(tables)[-1]):
            given = Given(order, split, next(brute_force.all_shares(tables)))
            check_sizes("node_order", {f"{seed} {order}": tables}, given)
