"""The layer-to-stage model: exactly the splits that there are, within memory."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables, build_tables
from formulations.cpsat.layer_to_stage import SplitVariables, build
from formulations.cpsat.terms import Linear
from formulations.instance import Cluster, Instance, NodeGroup, SearchSpace
from formulations.plan import Shape
from solver.result import Status
from tests.brute_force import all_splits
from tests.engine import all_solutions, solved
from tests.small_instances import gpu, layer, workload


def chain(kinds: str, pp: int, embedding_only: bool = False) -> CostTables:
    """Tables of pp single-GPU nodes; `kinds` has e, b, h for embedding, block, head."""
    names = {"e": "embedding", "b": "block", "h": "head"}
    layers = [layer(names[kind], 10 + n, 10**6, 0) for n, kind in enumerate(kinds)]
    one = gpu("one", 100, 80)
    group = NodeGroup(
        name="one",
        gpu=one,
        gpus_per_node=1,
        nodes=pp,
        price_usd_per_hour=1,
        intra_node=one.link,
        inter_node=one.link,
    )
    instance = Instance(
        name="chain",
        source="test",
        workload=workload(layers, 4, 1000, tied=False),
        cluster=Cluster(groups=(group,)),
        search=SearchSpace(embedding_only_stages=embedding_only),
    )
    shape = Shape(
        tp=1,
        dp=1,
        pp=pp,
        micro_batch=1,
        schedule="1f1b",
        recompute="none",
        zero=0,
        nodes_used=(pp,),
    )
    return build_tables(instance, shape)


def sized(
    tables: CostTables,
    capacity: int,
    static: Sequence[int] = (0, 0, 0, 0),
    activation: Sequence[int] = (0, 0, 0, 0),
    workspace: Sequence[int] = (0, 0, 0, 0),
) -> CostTables:
    """Tables of four layers with these bytes per layer, and nothing else in memory."""
    return replace(
        tables,
        fixed_bytes=0,
        static_bytes=np.array(static),
        activation_bytes=np.array(activation),
        workspace_bytes=np.array(workspace),
        capacity_bytes=np.array([capacity]),
    )


@pytest.mark.parametrize("embedding_only", [False, True])
@pytest.mark.parametrize(
    ("kinds", "pp"),
    [("ebbbbh", 1), ("ebbbbh", 2), ("ebbbbh", 3), ("ebbbbh", 4), ("eebbehbb", 3), ("bbbbb", 5)],
)
def test_solutions_are_the_splits(kinds: str, pp: int, embedding_only: bool) -> None:
    """The constraints (6) and (7) admit every split with enough blocks, once, and no other."""
    tables = chain(kinds, pp, embedding_only)
    model = cp_model.CpModel()
    split = SplitVariables(model, tables)
    assert all_solutions(model, split.extract) == sorted(all_splits(tables))


@pytest.mark.parametrize(("kinds", "feasible"), [("ebbbh", True), ("ebbh", False)])
def test_every_stage_needs_a_block(kinds: str, feasible: bool) -> None:
    """Three stages take three blocks, not two."""
    status = solved(build(chain(kinds, 3), [0, 0, 0], [4]).model).status
    assert status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)


def test_stage_without_blocks_where_allowed() -> None:
    """Two blocks make three stages, and four layers four, if a stage may hold the head alone."""
    assert solved(build(chain("ebbh", 4, True), [0] * 4, [4]).model).status is Status.OPTIMAL
    assert solved(build(chain("ebh", 4, True), [0] * 4, [4]).model).status is Status.INFEASIBLE


def extreme(tables: CostTables, boundaries: tuple[int, ...], term: str, k: int) -> int:
    """Least value that a stage term may take under one split."""
    model = cp_model.CpModel()
    split = SplitVariables(model, tables)
    values = np.array([3, 0, 7, 7, 2, 5], dtype=np.int64)
    value: Linear = getattr(split, term)(k, values)
    for end, row in zip(boundaries[1:-1], split.after, strict=True):
        for number, literal in enumerate(row):
            model.add(literal == int(number >= end))
    model.minimize(value)
    objective = solved(model).objective
    assert objective is not None
    return objective


@pytest.mark.parametrize("boundaries", [(0, 1, 2, 6), (0, 2, 4, 6), (0, 3, 4, 6), (0, 1, 5, 6)])
def test_stage_terms_are_sums_and_maxima(boundaries: tuple[int, ...]) -> None:
    """A stage's sum, and its largest value (8), are those of its layers."""
    tables = chain("bbbbbb", 3)
    values = [3, 0, 7, 7, 2, 5]
    for k in range(3):
        own = values[boundaries[k] : boundaries[k + 1]]
        assert extreme(tables, boundaries, "stage_sum", k) == sum(own)
        assert extreme(tables, boundaries, "largest", k) == max(own)


@pytest.mark.parametrize(("capacity", "feasible"), [(9, True), (8, False)])
def test_static_memory(capacity: int, feasible: bool) -> None:
    """(2) Layers of 5, 4, 4, 5 bytes on two stages take 9 bytes each at best."""
    tables = sized(chain("bbbb", 2), capacity, static=[5, 4, 4, 5])
    outcome = solved(build(tables, [0, 0], [1]).model)
    assert outcome.status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)


@pytest.mark.parametrize(("capacity", "feasible"), [(8, True), (7, False)])
def test_activations_in_flight(capacity: int, feasible: bool) -> None:
    """(2) 1F1B with two stages: the first holds two micro-batches, the second one."""
    # Layers of 4, 3, 2, 3 bytes: [4 | 3 2 3] holds 2 x 4 and 3 + 2 + 3: 8; [4 3 | 2 3] 14.
    tables = sized(chain("bbbb", 2), capacity, activation=[4, 3, 2, 3])
    outcome = solved(build(tables, [0, 0], [4]).model)
    assert outcome.status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)


@pytest.mark.parametrize(("capacity", "feasible"), [(11, True), (10, False)])
def test_largest_workspace_counts_once(capacity: int, feasible: bool) -> None:
    """(2) A stage needs its static bytes and the largest, not the sum, of its workspaces."""
    # Static 1 a layer, workspaces 3, 3, 9, 1. Two and two layers: 1 + 1 + 9 = 11 on the second
    # stage; three on the stage that has the 9: 12.
    tables = sized(chain("bbbb", 2), capacity, static=[1, 1, 1, 1], workspace=[3, 3, 9, 1])
    outcome = solved(build(tables, [0, 0], [1]).model)
    assert outcome.status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)


def test_hint_is_the_split() -> None:
    """A complete hint alone reproduces its split."""
    tables = chain("bbbbbb", 3)
    model = cp_model.CpModel()
    split = SplitVariables(model, tables)
    split.hint((0, 2, 3, 6))
    values = [0] * len(model.proto.variables)
    hint = model.proto.solution_hint
    for index, value in zip(hint.vars, hint.values, strict=True):
        values[index] = value
    assert split.extract(values) == (0, 2, 3, 6)
