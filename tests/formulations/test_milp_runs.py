"""Runs of layers that a stage may be: all that a plan needs, and no more than a split can give."""

from dataclasses import replace
from itertools import pairwise

import pytest

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.models.layer_to_stage import possible_runs
from tests import brute_force
from tests.loop_checks import judge
from tests.random_shapes import random_tables
from tests.seeds import one_each

Runs = list[set[tuple[int, int]]]


def runs_of(tables: CostTables, splits: list[tuple[int, ...]]) -> Runs:
    """Runs of every stage in some splits."""
    return [{(split[k], split[k + 1]) for split in splits} for k in range(tables.shape.pp)]


def as_sets(tables: CostTables, share: int = 1, limit_ns: int | None = None) -> Runs:
    """What `possible_runs` says."""
    return [
        set(map(tuple, runs.tolist()))
        for runs in possible_runs(StageCosts(tables), share, limit_ns)
    ]


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_with_room_and_time_every_split_counts(seed: int) -> None:
    """Without limits the runs are those of all splits."""
    tables = random_tables(seed)
    roomy = replace(tables, capacity_bytes=tables.capacity_bytes + 2**60)
    assert as_sets(roomy) == runs_of(roomy, list(brute_force.all_splits(roomy)))


@pytest.mark.parametrize("seed", one_each(range(60), 3))
def test_no_plan_within_the_limits_is_lost(seed: int) -> None:
    """Every plan that fits in memory and in the limit has its stages among the runs."""
    tables = random_tables(seed)
    known = [(made, judge(tables, made)) for made in brute_force.all_decisions(tables)]
    times = sorted(step for _, step in known if step is not None)
    for limit in times[:1] + times[len(times) // 2 :][:1]:
        plans = [made for made, step in known if step is not None and step <= limit]
        share = min(min(made.micro_batches) for made in plans)
        possible = as_sets(tables, share, limit)
        for made in plans:
            assert all(run in possible[k] for k, run in enumerate(pairwise(made.boundaries)))


def test_memory_and_time_leave_runs_out() -> None:
    """On no memory or in no time there is no run at all."""
    tables = random_tables(0)
    none: Runs = [set()] * tables.shape.pp
    assert as_sets(replace(tables, capacity_bytes=0 * tables.capacity_bytes)) == none
    assert as_sets(tables, 1, 0) == none
