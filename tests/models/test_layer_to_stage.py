"""The split of a model: exactly the splits that there are, within memory, and their bounds."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.decisions import Given
from formulations.instance import SearchSpace
from formulations.models.layer_to_stage import Split, excess, longest_path, possible_runs
from formulations.models.model import Model
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.brute_force import all_splits
from tests.loop_checks import judge
from tests.random_configs import random_tables
from tests.seeds import one_each
from tests.small_instances import (
    gpu,
    instance_of,
    layer,
    layers_of,
    nodes_of,
    plain_config,
    workload,
)
from tests.twins import TWINS, Twin, all_solutions, fix, has_solution, least_values


def chain(kinds: str, pp: int, embedding_only: bool = False) -> CostTables:
    """Tables of pp single-GPU nodes; `kinds` has e, b, h for embedding, block, head."""
    names = {"e": "embedding", "b": "block", "h": "head"}
    layers = [layer(names[kind], 10 + n, 10**6, 0) for n, kind in enumerate(kinds)]
    one = gpu("one", 100, 80)
    group = nodes_of(one, name="one", nodes=pp)
    work = workload(layers, 4, 1000, tied=False)
    search = SearchSpace(embedding_only_stages=embedding_only)
    instance = instance_of("chain", work, [group], search=search)
    return build_tables(instance, plain_config((pp,), pp=pp))


def free(model: Model, tables: CostTables) -> Split:
    """A free split."""
    return Split(model, tables, possible_runs(StageCosts(tables)))


def sized(
    tables: CostTables,
    capacity: int,
    static: Sequence[int] = (0, 0, 0, 0),
    activation: Sequence[int] = (0, 0, 0, 0),
    workspace: Sequence[int] = (0, 0, 0, 0),
) -> CostTables:
    """Tables of four layers with these bytes per layer, and nothing else in memory."""
    memory = layers_of(np.array(static), np.array(activation), np.array(workspace))
    return replace(tables, memory=(memory,), capacity_bytes=np.array([capacity]))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("embedding_only", [False, True])
@pytest.mark.parametrize(
    ("kinds", "pp"),
    [("ebbbbh", 1), ("ebbbbh", 2), ("ebbbbh", 3), ("ebbbbh", 4), ("eebbehbb", 3), ("bbbbb", 5)],
)
def test_solutions_are_the_splits(twin: Twin, kinds: str, pp: int, embedding_only: bool) -> None:
    """The constraints (6) and (7) admit every split with enough blocks, once, and no other."""
    tables = chain(kinds, pp, embedding_only)
    model = twin.model()
    split = free(model, tables)
    assert all_solutions(model, split) == sorted(all_splits(tables))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("kinds", "feasible"), [("ebbbh", True), ("ebbh", False)])
def test_every_stage_needs_a_block(twin: Twin, kinds: str, feasible: bool) -> None:
    """Three stages take three blocks, not two."""
    built = OneConfig(twin.model(), chain(kinds, 3), Given(order=[0, 0, 0], micro_batches=[4]))
    assert has_solution(built.model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_stage_without_blocks_where_allowed(twin: Twin) -> None:
    """Two blocks make three stages, and four layers four, if a stage may hold the head alone."""
    for kinds, feasible in (("ebbh", True), ("ebh", False)):
        given = Given(order=[0] * 4, micro_batches=[4])
        built = OneConfig(twin.model(), chain(kinds, 4, True), given)
        assert has_solution(built.model) == feasible


VALUES = [3, 0, 7, 7, 2, 5]
SPLITS = [(0, 1, 2, 6), (0, 2, 4, 6), (0, 3, 4, 6), (0, 1, 5, 6)]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("boundaries", SPLITS)
def test_stage_terms_are_sums(twin: Twin, boundaries: tuple[int, ...]) -> None:
    """(8) A stage's sum is that of its layers."""
    model = twin.model()
    split = free(model, chain("bbbbbb", 3))
    fix(model, split, boundaries)
    terms = [split.stage_sum(k, np.array(VALUES)) for k in range(3)]
    own = [VALUES[a:b] for a, b in pairwise(boundaries)]
    assert least_values(model, terms) == [sum(values) for values in own]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
@pytest.mark.parametrize(
    ("sizes", "micro_batches", "least"),
    [
        # Static bytes: two layers on each of two stages.
        ({"static": [5, 4, 4, 5]}, 1, 9),
        # In flight, the first of two stages of 1F1B holds two micro-batches, the second one:
        # [4 | 3 2 3] holds 2 x 4 and 3 + 2 + 3: 8; [4 3 | 2 3] 14.
        ({"activation": [4, 3, 2, 3]}, 4, 8),
        # Of workspaces the largest, not the sum: two and two layers, 1 + 1 + 9 = 11 on the second
        # stage; three on the stage that has the 9: 12.
        ({"static": [1, 1, 1, 1], "workspace": [3, 3, 9, 1]}, 1, 11),
    ],
)
def test_memory(
    twin: Twin, sizes: Any, micro_batches: int, least: int, spare: int, feasible: bool
) -> None:
    """(2) Four layers on two stages, with just the bytes that they take at best, or one less."""
    tables = sized(chain("bbbb", 2), least + spare, **sizes)
    given = Given(order=[0, 0], micro_batches=[micro_batches])
    assert has_solution(OneConfig(twin.model(), tables, given).model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_split_is_its_variables(twin: Twin) -> None:
    """The variables of a split, and they alone, stand for it."""
    model = twin.model()
    split = free(model, chain("bbbbbb", 3))
    fix(model, split, (0, 2, 3, 6))
    assert all_solutions(model, split) == [(0, 2, 3, 6)]


RunSets = list[set[tuple[int, int]]]


def runs_of(tables: CostTables, splits: list[tuple[int, ...]]) -> RunSets:
    """Runs of every stage in some splits."""
    return [{(split[k], split[k + 1]) for split in splits} for k in range(tables.config.pp)]


def as_sets(tables: CostTables, share: int = 1, limit_ns: int | None = None) -> RunSets:
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
    judged = [(made, judge(tables, made)) for made in brute_force.all_decisions(tables)]
    times = sorted(step for _, step in judged if step is not None)
    for limit in times[:1] + times[len(times) // 2 :][:1]:
        plans = [made for made, step in judged if step is not None and step <= limit]
        share = min(min(made.micro_batches) for made in plans)
        possible = as_sets(tables, share, limit)
        for made in plans:
            assert all(run in possible[k] for k, run in enumerate(pairwise(made.boundaries)))


def test_memory_and_time_leave_runs_out() -> None:
    """On no memory or in no time there is no run at all."""
    tables = random_tables(0)
    none: RunSets = [set()] * tables.config.pp
    assert as_sets(replace(tables, capacity_bytes=0 * tables.capacity_bytes)) == none
    assert as_sets(tables, 1, 0) == none


def random_runs(length: int, seed: int) -> Array:
    """Some runs of layers that a stage may be."""
    rng = random.Random(seed)
    every = list(combinations(range(length + 1), 2))
    return np.array(sorted(rng.sample(every, 6)), dtype=np.int64)


def values(length: int, seed: int) -> Array:
    """Random values per layer."""
    return np.random.default_rng(seed).integers(0, 100, length)


@pytest.mark.parametrize("seed", range(20))
def test_excess_is_the_largest_difference(seed: int) -> None:
    """No run has a larger difference of sums, and one has this."""
    intervals, first, second = random_runs(6, seed), values(6, seed), values(6, seed + 99)
    differences = [int((first - second)[a:b].sum()) for a, b in intervals]
    assert excess(intervals, first, second) == max(differences)


def test_excess_may_be_negative() -> None:
    """Two layers of 1 against two of 4: at best 3 less, for the shorter run."""
    intervals = np.array([[0, 1], [0, 2]])
    assert excess(intervals, np.array([1, 1]), np.array([4, 4])) == -3


def test_excess_of_no_run_is_nothing() -> None:
    """A stage that cannot be needs no slack."""
    assert excess(np.zeros((0, 2), dtype=np.int64), values(6, 0), values(6, 1)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_longest_path_is_the_longest(seed: int) -> None:
    """No split of 6 layers over 3 stages has a longer path, and one has this."""
    rng = random.Random(seed)
    columns = [[values(6, seed + 7 * k), values(6, seed + 9 * k + 1)] for k in range(3)]
    splits = [(0, a, b, 6) for a, b in combinations(range(1, 6), 2) if rng.random() < 0.7]
    stages = [(np.array(sorted({(s[k], s[k + 1]) for s in splits})), columns[k]) for k in range(3)]
    # Runs of the stages meet in more splits than those that made them.
    sets = [{tuple(run) for run in intervals.tolist()} for intervals, _ in stages]
    longest = max(
        sum(max(int(c[s[k] : s[k + 1]].sum()) for c in columns[k]) for k in range(3))
        for s in ((0, a, b, 6) for a, b in combinations(range(1, 6), 2))
        if all((s[k], s[k + 1]) in sets[k] for k in range(3))
    )
    assert longest_path(stages, 6) == longest


def test_no_path_is_nothing() -> None:
    """Stages that do not meet leave no split, and nothing to take back."""
    ones = np.ones(4, dtype=np.int64)
    stages = [(np.array([[0, 1]]), [ones]), (np.array([[2, 4]]), [ones])]
    assert longest_path(stages, 4) == 0
