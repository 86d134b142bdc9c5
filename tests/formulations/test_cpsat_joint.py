"""The joint model: a composition that loses nothing."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.cpsat import joint, layer_to_stage, microbatches, node_order
from formulations.cpsat.step_time import Built
from formulations.decisions import Decisions, decisions_of
from solver.result import Status
from solver.search.paths import first_cuts
from tests import brute_force
from tests.engine import solved
from tests.random_shapes import random_tables


def random_decisions(tables: CostTables, seed: int) -> Decisions:
    """Any decisions, in memory or not."""
    rng = random.Random(seed)
    return Decisions(
        rng.choice(brute_force.all_orders(tables)),
        rng.choice(list(brute_force.all_splits(tables))),
        rng.choice(list(brute_force.all_shares(tables))),
    )


def with_first_cuts(built: Built) -> Built:
    """The model with the paths that the loop starts from."""
    shape = built.tables.shape
    for m in range(1, built.tables.num_micro_batches + 1):
        for cut in first_cuts(shape.schedule, shape.pp, m):
            built.add_cut(cut)
    return built


def least_capacity(tables: CostTables) -> int:
    """Least memory, alike on all GPUs, with which some plan fits."""
    stages = range(tables.shape.pp)
    return min(
        max(tables.stage_memory(split[k], split[k + 1], k, m) for k in stages for m in share)
        for split, share in product(brute_force.all_splits(tables), brute_force.all_shares(tables))
    )


@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
def test_memory_to_the_byte(spare: int, status: Status) -> None:
    """(2) With the least capacity there is a plan, with a byte less there is none."""
    for seed in range(60):
        tables = random_tables(seed)
        capacity = np.full_like(tables.capacity_bytes, least_capacity(tables) + spare)
        built = joint.build(replace(tables, capacity_bytes=capacity))
        assert solved(built.model).status is status


def test_without_paths_it_is_a_lower_bound() -> None:
    """Some cuts, or none: never above the best step time."""
    for seed in range(60):
        tables = random_tables(seed)
        best = brute_force.optimum_ns(tables)
        if best is None:
            continue
        bare, started = (solved(built.model).objective for built in _bare_and_started(tables))
        assert bare is not None
        assert started is not None
        assert bare <= started <= best


def _bare_and_started(tables: CostTables) -> list[Built]:
    return [joint.build(tables), with_first_cuts(joint.build(tables))]


def test_fixing_parts_gives_the_other_models() -> None:
    """The joint model with two parts given has the objective of the model of the third."""
    for seed in range(0, 60, 4):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        order, split, shares = made.order, made.boundaries, made.micro_batches
        pairs = [
            (
                layer_to_stage.build(tables, order, shares),
                joint.build(tables, order=order, micro_batches=shares),
            ),
            (
                node_order.build(tables, split, shares),
                joint.build(tables, boundaries=split, micro_batches=shares),
            ),
            (
                microbatches.build(tables, order, split),
                joint.build(tables, order=order, boundaries=split),
            ),
        ]
        for single, composed in pairs:
            alone, together = (solved(with_first_cuts(one).model) for one in (single, composed))
            assert (alone.status, alone.objective) == (together.status, together.objective)


@pytest.mark.parametrize("seed", range(0, 40))
def test_solutions_are_plans(seed: int) -> None:
    """What is extracted is an order, a split and shares of the shape that fit in memory."""
    tables = random_tables(seed)
    built = joint.build(tables)
    values = solved(built.model).values
    if values is None:
        assert brute_force.optimum_ns(tables) is None
        return
    found = built.extract(values)
    assert found.order in brute_force.all_orders(tables)
    assert found.boundaries in list(brute_force.all_splits(tables))
    assert found.micro_batches in list(brute_force.all_shares(tables))
    placed = brute_force.place(tables, found.order)
    assert brute_force.fits(tables, placed, found.boundaries, found.micro_batches)


def test_decisions_of_their_plan() -> None:
    """A plan holds its decisions."""
    for seed in range(40):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        assert decisions_of(tables.instance, made.plan(tables)) == made


def test_hint_names_the_decisions() -> None:
    """The hint of a plan, taken as a solution, is extracted as the same plan."""
    for seed in range(0, 60, 4):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        built = joint.build(tables)
        built.hint(made)
        values = [0] * len(built.model.proto.variables)
        hint = built.model.proto.solution_hint
        for index, value in zip(hint.vars, hint.values, strict=True):
            values[index] = value
        assert built.extract(values) == made


@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
def test_budget_to_the_nanosecond(spare: int, status: Status) -> None:
    """(4) The model's own optimum is within a budget of that, not of a nanosecond less."""
    for seed in range(20):
        tables = random_tables(seed)
        best = solved(with_first_cuts(joint.build(tables)).model).objective
        if best is not None:
            built = joint.build(tables, max_step_time_ns=best + spare)
            assert solved(with_first_cuts(built).model).status is status
