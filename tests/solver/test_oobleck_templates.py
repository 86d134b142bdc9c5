"""Oobleck's objective: its formula, its optimum, and the public planner's templates."""

from pathlib import Path

import pytest

from bench.planner import PS_PER_MS, places, read_case
from solver.resilience.arrangement import Split
from solver.resilience.oobleck import oobleck_templates, oobleck_value, stage_times
from solver.resilience.places import PlaceCosts
from tests.template_cases import all_templates, random_places

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


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("seed", range(12))
def test_optimum_is_that_of_all_templates(seed: int, split: Split) -> None:
    """One node group of 4, 3 or 2 GPUs, or two groups; 1 to 3 nodes; many equal stage times."""
    groups = [((4,), (3,)), ((3,), (3,)), ((2, 1), (2, 1)), ((4, 2), (1, 2))][seed % 4]
    most = 3 if seed % 3 == 0 else 20
    tables = random_places(seed, 5, *groups, split=split, most=most)
    num_nodes = sum(groups[1])
    finals = {n: [v for v in _vectors(groups[1]) if sum(v) == n] for n in range(1, num_nodes + 1)}
    found = oobleck_templates(PlaceCosts(tables, tables), finals)
    for n in finals:
        values = [oobleck_value(stage_times(tables, t)) for t in all_templates(tables, n)]
        assert (n in found) == bool(values)
        if values:
            assert oobleck_value(stage_times(tables, found[n])) == min(values)
            assert found[n].num_nodes == n


def _vectors(most: tuple[int, ...]) -> list[tuple[int, ...]]:
    if not most:
        return [()]
    return [(n, *rest) for n in range(most[0] + 1) for rest in _vectors(most[1:])]


@pytest.mark.parametrize("name", PLANNER)
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


def test_better_than_the_public_planner_with_as_many_stages_as_layers(reference: Path) -> None:
    """22 nodes of 8 GPUs, 24 layers: it reports 834.04215 ms and never tries 24 stages."""
    case = read_case(reference / "oobleck" / "planner" / "L24_N24_G8.json")
    tables = places(case)
    found = oobleck_templates(PlaceCosts(tables, tables), {22: [(22,)]})[22]
    assert found.num_stages == 24
    assert oobleck_value(stage_times(tables, found)) == 833_752_000_000
    assert case.templates[22].reported_ms == pytest.approx(834.04215)
