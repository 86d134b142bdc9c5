"""Oobleck's objective: its formula, its optimum, and the public planner's templates."""

from pathlib import Path

import pytest

from bench.oobleck_templates import (
    oobleck_templates,
    oobleck_value,
    stage_times,
)
from bench.planner import PS_PER_MS, places, read_case
from formulations.node_sharing import NodeSplit
from solver.graph.places import PlaceCosts
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, small_case

PLANNER = [f"L24_N{nodes}_G{gpus}" for nodes in (8, 16, 24) for gpus in (1, 4, 8)]


@pytest.mark.parametrize(
    ("times", "value"),
    [
        ([5], 20),  # 4 t
        ([1, 3, 2], 35),  # T1 6, T2 (6 + 1 + 1) 3, T3 3 + 2
        ([3, 1, 3], 37),  # k* is the last of the slowest: 7 + (6 + 2 + 1) 3 + 3
    ],
)
def test_value_by_hand(times: list[int], value: int) -> None:
    """T1 + T2 + T3 of three pipelines."""
    assert oobleck_value(times) == value


@pytest.mark.parametrize("split", list(NodeSplit))
@pytest.mark.parametrize("seed", one_each(range(12), 7))
def test_optimum_is_that_of_all_templates(seed: int, split: NodeSplit) -> None:
    """One to two node groups of 1 to 4 GPUs, 1 to 3 nodes, some with many equal stage times."""
    tables = small_case(seed, split)
    finals = finals_of(tables)
    found = oobleck_templates(PlaceCosts(tables, tables), finals)
    for n in finals:
        values = [oobleck_value(stage_times(tables, t)) for t in all_templates(tables, n)]
        assert (n in found) == bool(values)
        if values:
            assert oobleck_value(stage_times(tables, found[n])) == min(values)
            assert found[n].num_nodes == n


@pytest.mark.parametrize("name", one_each(PLANNER, 9))
def test_never_above_the_public_planner(name: str, reference: Path) -> None:
    """Every template of every stored output; its own value is what it reported."""
    case = read_case(reference / "oobleck" / "planner" / f"{name}.json")
    tables = places(case)
    finals = {n: [(n,)] for n in case.templates}
    found = oobleck_templates(PlaceCosts(tables, tables), finals)
    for n, theirs in case.templates.items():
        reported = theirs.reported_ms * PS_PER_MS
        own = oobleck_value(stage_times(tables, theirs.template))
        assert own == pytest.approx(reported, rel=1e-12)
        assert oobleck_value(stage_times(tables, found[n])) <= own


@pytest.mark.slow
def test_better_than_the_public_planner_with_as_many_stages_as_layers(reference: Path) -> None:
    """22 nodes of 8 GPUs, 24 layers: it reports 834.04215 ms and never tries 24 stages."""
    case = read_case(reference / "oobleck" / "planner" / "L24_N24_G8.json")
    tables = places(case)
    found = oobleck_templates(PlaceCosts(tables, tables), {22: [(22,)]})[22]
    assert found.num_stages == 24
    assert oobleck_value(stage_times(tables, found)) == 833_752_000_000
    assert case.templates[22].reported_ms == pytest.approx(834.04215)
