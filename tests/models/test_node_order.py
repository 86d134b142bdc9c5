"""The node-order models, CP-SAT and MILP: the orders that there are, at their costs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given
from formulations.models.layer_to_stage import Split, given_runs
from formulations.models.model import Costs, Solution
from formulations.models.node_order import FixedOrder, FreeOrder, order_part
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.random_configs import random_tables
from tests.seeds import few_and_many
from tests.twins import CPSAT, TWINS, Twin, all_solutions, fix, has_solution, least_values

SEEDS = few_and_many(range(120), 7)


def mixed(seeds: Sequence[int]) -> list[CostTables]:
    known = [random_tables(seed) for seed in seeds]
    return [tables for tables in known if len(tables.used) == len(tables.config.nodes_used) == 2]


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
    split, config = Split(model, tables, given_runs(boundaries)), tables.config
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


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", SEEDS)
def test_costs_of_every_order(twin: Twin, seeds: Sequence[int]) -> None:
    """(15) to (21) force transfers, sync, gather and embedding to the nanosecond."""
    for tables in mixed(seeds) + in_zones(seeds):
        boundaries = next(brute_force.all_splits(tables))
        for order in brute_force.all_orders(tables):
            found = least_terms(twin, tables, order, boundaries)
            assert found == counted_terms(tables, order, boundaries)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
@pytest.mark.parametrize("seeds", SEEDS)
def test_small_nodes_stand_where_they_fit(
    twin: Twin, seeds: Sequence[int], spare: int, feasible: bool
) -> None:
    """(2) The memory of a group counts exactly where it stands."""
    for tables in mixed(seeds):
        boundaries = next(brute_force.all_splits(tables))
        shares = next(brute_force.all_shares(tables))
        sizes = {
            (k, r): brute_force.least_bytes(tables, [stage], k, share)
            for k, stage in enumerate(pairwise(boundaries))
            for r, share in enumerate(shares)
        }
        # Group 0 has room for everything; group 1 for the least that some order asks of it.
        need = min(
            max(size for (k, r), size in sizes.items() if groups[k * len(shares) + r] == 1)
            for order in brute_force.all_orders(tables)
            for groups in [brute_force.place(tables, order).groups]
        )
        small = replace(tables, capacity_bytes=np.array([1 << 60, need + spare]))
        built = OneConfig(twin.model(), small, Given(boundaries=boundaries, micro_batches=shares))
        assert has_solution(built.model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_single_group_leaves_no_choice(twin: Twin) -> None:
    known = (random_tables(seed) for seed in range(1, 99))
    tables = next(one for one in known if one.config.nodes_used in ((2,), (2, 0)))
    order = order_part(twin.model(), tables, ALL_FREE)
    assert isinstance(order, FixedOrder)
    assert order.extract(Solution([])) == (0, 0)


def test_excess_of_messages_is_their_largest_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """(7, 5) is at most 4 more than (3, 4), whichever tensors are sent."""
    tables = mixed(range(40))[0]
    part, seen = FreeOrder(CPSAT.model(), tables), list[Costs[tuple[int, ...]]]()
    monkeypatch.setattr(part.model, "largest", lambda _, costs, *__: seen.append(costs))
    part.send(0, 0, Split(part.model, tables, given_runs(next(brute_force.all_splits(tables)))))
    assert seen[0].excess((7, 5), (3, 4)) == 4
