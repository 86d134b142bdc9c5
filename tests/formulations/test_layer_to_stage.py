"""The layer-to-stage models, CP-SAT and MILP: exactly the splits that there are, within memory."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Given
from formulations.instance import SearchSpace
from formulations.models.layer_to_stage import Split, possible_runs
from formulations.models.model import Model
from formulations.models.step_time import OneShape
from tests.brute_force import all_splits
from tests.small_instances import (
    gpu,
    instance_of,
    layer,
    layers_of,
    nodes_of,
    plain_shape,
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
    return build_tables(instance, plain_shape((pp,), pp=pp))


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
    built = OneShape(twin.model(), chain(kinds, 3), Given(order=[0, 0, 0], micro_batches=[4]))
    assert has_solution(built.model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_stage_without_blocks_where_allowed(twin: Twin) -> None:
    """Two blocks make three stages, and four layers four, if a stage may hold the head alone."""
    for kinds, feasible in (("ebbh", True), ("ebh", False)):
        given = Given(order=[0] * 4, micro_batches=[4])
        built = OneShape(twin.model(), chain(kinds, 4, True), given)
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
    assert has_solution(OneShape(twin.model(), tables, given).model) == feasible


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_split_is_its_variables(twin: Twin) -> None:
    """The variables of a split, and they alone, stand for it."""
    model = twin.model()
    split = free(model, chain("bbbbbb", 3))
    fix(model, split, (0, 2, 3, 6))
    assert all_solutions(model, split) == [(0, 2, 3, 6)]
