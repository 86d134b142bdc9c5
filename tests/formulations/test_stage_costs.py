"""What stages recompute: as little as fits, however it is worked out."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from formulations.costs.recompute_choice import NEVER
from formulations.costs.recompute_costs import memory_parts, recomputed_ns
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.recompute_rows import least_runs
from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from tests import brute_force
from tests.cramped import cramped_tables
from tests.recursion import stage_ends
from tests.seeds import few_and_many, one_each

SCHEDULES = ("1f1b", "gpipe", "zb-h1")


def all_stages(tables: CostTables) -> list[tuple[int, int, int, int, int]]:
    """Stage, group, micro-batches, first layer and one after the last."""
    layers = range(tables.num_layers + 1)
    kinds = product(range(tables.shape.pp), range(len(tables.capacity_bytes)), (1, 2, 5))
    return [(*kind, a, b) for kind in kinds for a, b in product(layers, layers) if a < b]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seeds", few_and_many(range(40), 10))
def test_least_time_is_that_of_all_options(seeds: list[int], schedule: str) -> None:
    """Search and verifier find the least time of any way and number of blocks that has room."""
    recomputed = 0
    for seed in seeds:
        tables = cramped_tables(seed, schedule)
        stages, prover = StageCosts(tables), Prover(PlanSpace(tables.instance))
        for k, j, m, a, b in all_stages(tables):
            choices = brute_force.options(tables, range(a, b))
            chunks = [range(0)] * k + [range(a, b)]
            times = [
                sum(int(tables.recompute_ns[i][x, j]) for x, i in ways.items())
                for ways in choices
                if brute_force.device_bytes(tables, chunks, k, m, ways) <= tables.capacity_bytes[j]
            ]
            least = min(times, default=None)
            for found in (stages.extra(j, k, m)[a, b], prover.extra(tables.shape, k, m)[j, a, b]):
                assert (None if found >= 1 << 59 else int(found)) == least
            recomputed += bool(least)
    assert recomputed


@pytest.mark.parametrize("seed", one_each(range(40), 4))
def test_chosen_blocks_are_those_of_the_time(seed: int) -> None:
    """What a stage is said to recompute takes the least time, and fits where anything does."""
    tables = cramped_tables(seed, SCHEDULES[seed % 3])
    stages = StageCosts(tables)
    for k, j, m, a, b in all_stages(tables):
        extra = int(stages.extra(j, k, m)[a, b])
        moments = stages.moments(k, m)
        other = stages.recomputed_of(j, moments, (a, b))
        for found in (*stages.recomputed(k, j, m, [(a, b)]), other):
            time_ns = recomputed_ns(tables, j, (a, b), found)
            need = sum(memory_parts(tables, [(a, b)], k, j, m, [found]))
            fits = need <= tables.capacity_bytes[j]
            assert (fits, time_ns) == ((True, extra) if extra < NEVER else (False, 0))


@pytest.mark.parametrize("seed", one_each(range(40), 8))
def test_rows_of_the_models_give_the_time(seed: int) -> None:
    """The largest of the least runs that a stage holds is its time, and it never falls."""
    tables = cramped_tables(seed)
    extra = StageCosts(tables).extra(0, 0, 3)
    runs = least_runs(extra)
    for a, b in zip(*np.triu_indices(len(extra), k=1), strict=True):
        held = [
            NEVER if run.extra_ns is None else run.extra_ns
            for run in runs
            if a <= run.start and run.end <= b
        ]
        assert max(held, default=0) == extra[a, b]


@pytest.mark.parametrize("seed", one_each(range(24), 6))
def test_no_other_choice_makes_a_step_shorter(seed: int) -> None:
    """Every combination of options that fits, stage by stage of one replica, is no faster."""
    tables = cramped_tables(seed, SCHEDULES[seed % 3])
    tables = replace(tables, shape=tables.shape.but(dp=1))
    order = brute_force.all_orders(tables)[0]
    groups = list(order)[: tables.shape.pp]
    if len(groups) < tables.shape.pp or tables.shape.pp < 2:
        pytest.skip("fewer nodes than stages")
    split = next(brute_force.all_splits(tables))
    layers = [range(a, b) for a, b in pairwise(split)]
    m, best = 3, []
    weights = tables.weight_ns if tables.shape.schedule == "zb-h1" else 0 * tables.weight_ns
    for ways in product(*(list(brute_force.options(tables, own)) for own in layers)):
        need = [brute_force.device_bytes(tables, layers, k, m, own) for k, own in enumerate(ways)]
        if any(size > tables.capacity_bytes[j] for size, j in zip(need, groups, strict=True)):
            continue
        forward, backward, weight = (
            [sum(int(table[x, j]) for x in own) for own, j in zip(layers, groups, strict=True)]
            for table in (tables.forward_ns, tables.backward_ns - weights, weights)
        )
        again = [
            sum(int(tables.recompute_ns[i][x, j]) for x, i in own.items())
            for own, j in zip(ways, groups, strict=True)
        ]
        backward = [time + more for time, more in zip(backward, again, strict=True)]
        send = [0] * (tables.shape.pp - 1)
        schedule = tables.shape.schedule
        ends = stage_ends(schedule, m, forward, backward, send, False, weight=weight)
        best.append((max(ends), sum(again)))
    stages = StageCosts(tables)
    least = [int(stages.extra(j, k, m)[split[k], split[k + 1]]) for k, j in enumerate(groups)]
    if best:
        assert min(best) == min(pair for pair in best if pair[1] == sum(least))
    else:
        assert max(least) >= NEVER
