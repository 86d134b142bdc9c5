"""The joint models, CP-SAT and MILP: a composition that loses nothing."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, Given
from formulations.models.step_time import OneConfig
from solver.result import Status
from tests import brute_force
from tests.best_plans import judge, need_bytes, random_decisions
from tests.conftest import present
from tests.random_configs import WITH_NEW, cramped_tables, random_optimum_ns, random_tables
from tests.seeds import each_of, one_each
from tests.twins import MILP, TWINS, Twin, check_sizes, solved, with_first_cuts


def roomy(seed: int) -> tuple[CostTables, Decisions]:
    """Random tables with room for everything on every GPU, and a plan."""
    tables = random_tables(seed)
    tables = replace(tables, capacity_bytes=tables.capacity_bytes + 2**60)
    return tables, random_decisions(tables, seed)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
@each_of(range(60), 12)
def test_memory_to_the_byte(twin: Twin, seed: int, spare: int, status: Status) -> None:
    """(2) With the least capacity there is a plan, with a byte less there is none."""
    tables = random_tables(seed)
    plans = product(brute_force.all_splits(tables), brute_force.all_shares(tables))
    least = min(need_bytes(tables, *plan) for plan in plans)
    capacity = np.full_like(tables.capacity_bytes, least + spare)
    built = OneConfig(twin.model(), replace(tables, capacity_bytes=capacity))
    assert solved(built.model).status is status


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seed", one_each(range(60), 15))
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
    for seed in (0, 12):  # shares of the latter are unlike, and runs of layers follow the least
        tables, *_, last = random_tables(seed), *brute_force.all_shares(random_tables(seed))
        given = Given(micro_batches=last, max_step_time_ns=random_optimum_ns(seed))
        check_sizes("step_time", {f"shares {seed}": tables}, given)


@pytest.mark.parametrize("seed", [9, 15])
def test_milp_exclusion_leaves_out_one_plan(seed: int) -> None:
    """(22) Excluding plan by plan gives every plan of a config of two groups once, then none."""
    tables, _ = roomy(seed)
    assert len(brute_force.all_orders(tables)) > 1
    built, left = OneConfig(MILP.model(), tables), set(brute_force.all_decisions(tables))
    while (values := solved(built.model).values) is not None:
        decisions = present(built.extract(values))
        left.remove(decisions)
        built.exclude(decisions)
    assert not left


def test_models_of_scarce_memory_are_the_recorded_ones() -> None:
    """Least runs of layers that recompute for so long: what a stage holds decides its time."""
    for schedule in ("1f1b", "interleaved", "zb-h1"):
        drawn = {f"{schedule} {seed}": cramped_tables(seed, schedule) for seed in range(4)}
        check_sizes("stage_times", drawn)
