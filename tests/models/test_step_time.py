"""The joint models, CP-SAT and MILP: a composition that loses nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, Given, decisions_of
from formulations.models.milp import Milp
from formulations.models.step_time import OneConfig
from solver.result import Status
from solver.search.paths import first_cuts
from tests import brute_force
from tests.loop_checks import need_bytes, random_decisions
from tests.random_configs import random_optimum_ns, random_tables
from tests.seeds import few_and_many, one_each
from tests.twins import MILP, TWINS, Twin, solved

#: A literal that is off by HiGHS's tolerance, 1e-9, is worth half a nanosecond of so long a time.
LONG_NS = 500_000_000


def with_first_cuts(tables: CostTables, built: OneConfig) -> OneConfig:
    """The model with the paths that the loop starts from."""
    config = tables.config
    for m in range(1, tables.num_micro_batches + 1):
        for cut in first_cuts(config.schedule, config.pp, m):
            built.add_cut(cut)
    return built


def roomy(tables: CostTables) -> CostTables:
    """The tables with room for everything on every GPU."""
    return replace(tables, capacity_bytes=tables.capacity_bytes + 2**60)


def values_of(built: OneConfig, decisions: Decisions) -> list[float]:
    """A solution vector in which nothing but decisions is set."""
    built.hint(decisions)
    if isinstance(built.model, Milp):
        return [variable.varValue or 0 for variable in built.model.native.variables()]
    values = [0.0] * len(built.model.variables)
    hint = built.model.native.proto.solution_hint
    for index, value in zip(hint.vars, hint.values, strict=True):
        values[index] = value
    return values


def least_capacity(tables: CostTables) -> int:
    """Least memory, alike on all GPUs, with which some plan fits."""
    plans = product(brute_force.all_splits(tables), brute_force.all_shares(tables))
    return min(need_bytes(tables, *plan) for plan in plans)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 3))
def test_memory_to_the_byte(twin: Twin, seeds: Sequence[int], spare: int, status: Status) -> None:
    """(2) With the least capacity there is a plan, with a byte less there is none."""
    for seed in seeds:
        tables = random_tables(seed)
        capacity = np.full_like(tables.capacity_bytes, least_capacity(tables) + spare)
        built = OneConfig(twin.model(), replace(tables, capacity_bytes=capacity))
        assert solved(built.model).status is status


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seeds", few_and_many(range(60), 3))
def test_without_paths_it_is_a_lower_bound(twin: Twin, seeds: Sequence[int]) -> None:
    """Some cuts, or none: never above the best step time."""
    for seed in seeds:
        tables, best = random_tables(seed), random_optimum_ns(seed)
        if best is None:
            continue
        bare, started = (solved(built.model).objective for built in _bare_and_started(twin, tables))
        assert bare is not None
        assert started is not None
        assert bare <= started <= best


def _bare_and_started(twin: Twin, tables: CostTables) -> list[OneConfig]:
    return [
        OneConfig(twin.model(), tables),
        with_first_cuts(tables, OneConfig(twin.model(), tables)),
    ]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seed", one_each(range(40), 3))
def test_solutions_are_plans(twin: Twin, seed: int) -> None:
    """What is extracted is an order, a split and shares of the configuration that fit in memory."""
    tables = random_tables(seed)
    built = OneConfig(twin.model(), tables)
    values = solved(built.model).values
    if values is None:
        assert random_optimum_ns(seed) is None
        return
    found = built.extract(values)
    assert found is not None
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


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_variables_stand_for_the_decisions(twin: Twin) -> None:
    """The values that a plan gives to the variables are extracted as the same plan."""
    for seed in range(0, 60, 4):
        tables = roomy(random_tables(seed))
        made = random_decisions(tables, seed)
        built = OneConfig(twin.model(), tables)
        assert built.extract(values_of(built, made)) == made


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
@pytest.mark.parametrize("seeds", few_and_many(range(21), 3))
def test_budget_to_the_nanosecond(
    twin: Twin, seeds: Sequence[int], spare: int, status: Status
) -> None:
    """(4) The model's own optimum is within a budget of that, not of a nanosecond less.

    MILP is asked of times that its tolerance tells apart; of longer ones its plans are simulated.
    """
    for seed in seeds:
        tables = random_tables(seed)
        best = solved(with_first_cuts(tables, OneConfig(twin.model(), tables)).model).objective
        if best is not None and not (twin is MILP and best > LONG_NS):
            built = OneConfig(twin.model(), tables, Given(max_step_time_ns=best + spare))
            assert solved(with_first_cuts(tables, built).model).status is status


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_milp_values_that_disagree_are_no_decisions(seed: int) -> None:
    """A vector that turns one literal of a plan around is refused, unless it makes another plan."""
    tables = roomy(random_tables(seed))
    made = random_decisions(tables, seed)
    built = OneConfig(MILP.model(), tables)
    values = values_of(built, made)
    literals = {
        built.model.variables[index].name
        for variable, _ in built.assignment(made)
        for index in variable.terms
    }
    for n, variable in enumerate(built.model.native.variables()):
        if variable.name in literals:
            turned = [*values[:n], 1 - values[n], *values[n + 1 :]]
            found = built.extract(turned)
            assert found != made
            assert found is None or list(values_of(built, found)) == turned


def test_milp_fractional_values_are_no_decisions() -> None:
    """A literal at one half is neither; one at 1 - 1e-7 is 1."""
    tables = roomy(random_tables(0))
    made = random_decisions(tables, 0)
    built = OneConfig(MILP.model(), tables)
    values = values_of(built, made)
    one = values.index(1)
    for value, expected in ((0.5, None), (1 - 1e-7, made)):
        assert built.extract([*values[:one], value, *values[one + 1 :]]) == expected


def test_milp_exclusion_leaves_out_one_plan() -> None:
    """(22) Excluding plan by plan gives every plan of a config of two groups once, then none."""
    known = [random_tables(seed) for seed in (9, 10, 15, 21)]
    for tables in map(roomy, known):
        assert len(brute_force.all_orders(tables)) > 1
        built, left = OneConfig(MILP.model(), tables), set(brute_force.all_decisions(tables))
        while (values := solved(built.model).values) is not None:
            decisions = built.extract(values)
            assert decisions is not None
            left.remove(decisions)
            built.exclude(decisions)
        assert not left
