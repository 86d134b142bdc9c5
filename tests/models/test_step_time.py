"""The joint models, CP-SAT and MILP: a composition that loses nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, Given
from formulations.models.milp import Milp
from formulations.models.step_time import OneConfig
from solver.result import Status
from tests import brute_force
from tests.loop_checks import judge, need_bytes, random_decisions
from tests.random_configs import WITH_NEW, random_optimum_ns, random_tables
from tests.seeds import few_and_many, one_each
from tests.twins import MILP, TWINS, Twin, check_sizes, solved, with_first_cuts

#: A literal that is off by HiGHS's tolerance, 1e-9, is worth half a nanosecond of so long a time.
LONG_NS = 500_000_000


def roomy(seed: int) -> tuple[CostTables, Decisions]:
    """Random tables with room for everything on every GPU, and a plan."""
    tables = random_tables(seed)
    tables = replace(tables, capacity_bytes=tables.capacity_bytes + 2**60)
    return tables, random_decisions(tables, seed)


def values_of(built: OneConfig, decisions: Decisions) -> list[float]:
    """A solution vector in which nothing but decisions is set."""
    built.hint(decisions)
    if isinstance(built.model, Milp):
        return [variable.varValue or 0 for variable in built.model.native.variables()]
    hint = built.model.native.proto.solution_hint
    hinted = dict(zip(hint.vars, hint.values, strict=True))
    return [hinted.get(n, 0) for n in range(len(built.model.variables))]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_memory_to_the_byte(twin: Twin, seeds: Sequence[int], spare: int, status: Status) -> None:
    """(2) With the least capacity there is a plan, with a byte less there is none."""
    for seed in seeds:
        tables = random_tables(seed)
        plans = product(brute_force.all_splits(tables), brute_force.all_shares(tables))
        least = min(need_bytes(tables, *plan) for plan in plans)
        capacity = np.full_like(tables.capacity_bytes, least + spare)
        built = OneConfig(twin.model(), replace(tables, capacity_bytes=capacity))
        assert solved(built.model).status is status


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seed", one_each(range(60), 4))
def test_solutions_are_plans_and_without_paths_a_lower_bound(twin: Twin, seed: int) -> None:
    """Orders, splits and shares that fit; with some cuts, or none, never above the best step."""
    tables, best = random_tables(seed), random_optimum_ns(seed)
    built = OneConfig(twin.model(), tables)
    bare = solved(built.model)
    started = solved(with_first_cuts(tables, OneConfig(twin.model(), tables)).model)
    if best is None or bare.values is None or bare.objective is None:
        assert (best, bare.values, started.values) == (None, None, None)
        return
    assert bare.objective <= (started.objective or 0) <= best
    plan = built.extract(bare.values)
    assert plan in set(brute_force.all_decisions(tables))
    assert judge(tables, plan) is not None


def test_models_are_the_recorded_ones() -> None:
    """With all decisions free, in every schedule, tied embeddings and zones among them."""
    for schedule in WITH_NEW:
        drawn = {
            f"{seed} {schedule}": random_tables(seed, seed % 2 > 0, schedule)
            for seed in (0, 1, 2, 4, 8, 12)
        }
        check_sizes("step_time", drawn, Given(max_step_time_ns=1 << 48))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seed", range(0, 60, 8))
def test_variables_stand_for_the_decisions(twin: Twin, seed: int) -> None:
    """What a plan gives to the variables is extracted as the same plan.

    A vector of HiGHS with one literal turned around, or at one half, is none, or another plan.
    """
    tables, made = roomy(seed)
    built = OneConfig(twin.model(), tables)
    values = values_of(built, made)
    assert built.extract(values) == made
    literals = {
        built.model.variables[index].name
        for variable, _ in built.assignment(made)
        for index in variable.terms
    }
    for n, variable in enumerate(built.model.native.variables() if twin is MILP else ()):
        if variable.name in literals:
            near, half, turned = (
                [*values[:n], abs(values[n] - x), *values[n + 1 :]] for x in (1e-7, 0.5, 1)
            )
            assert (built.extract(near), built.extract(half)) == (made, None)
            found = built.extract(turned)
            assert found != made
            assert found is None or list(values_of(built, found)) == turned


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


@pytest.mark.parametrize("seed", [9, 15])
def test_milp_exclusion_leaves_out_one_plan(seed: int) -> None:
    """(22) Excluding plan by plan gives every plan of a config of two groups once, then none."""
    tables, _ = roomy(seed)
    assert len(brute_force.all_orders(tables)) > 1
    built, left = OneConfig(MILP.model(), tables), set(brute_force.all_decisions(tables))
    while (values := solved(built.model).values) is not None:
        decisions = built.extract(values)
        assert decisions is not None
        left.remove(decisions)
        built.exclude(decisions)
    assert not left
