"""Oobleck's objective: its formula, its optimum, and the public planner's templates."""

from pathlib import Path

import pytest

from bench.oobleck_templates import oobleck_templates, oobleck_value, stage_times
from bench.planner import PS_PER_MS, places, read_case
from solver.graph.places import PlaceCosts
from tests.seeds import one_each

PLANNER = [f"L24_N{nodes}_G{gpus}" for nodes in (8, 16, 24) for gpus in (1, 4, 8)]


def test_value_by_hand() -> None:
    """T1 + T2 + T3 of three pipelines; k* is the last of the slowest."""
    assert oobleck_value([5]) == 4 * 5
    assert oobleck_value([1, 3, 2]) == 6 + (6 + 1 + 1) * 3 + 3 + 2
    assert oobleck_value([3, 1, 3]) == 7 + (6 + 2 + 1) * 3 + 3


@pytest.mark.parametrize("name", one_each(PLANNER, 9))
def test_never_above_the_public_planner(name: str, reference: Path) -> None:
    """Every template of every stored output; its own value is what it reported.

    22 nodes of 8 GPUs, 24 layers: it reports 834.04215 ms, as it never tries 24 stages.
    """
    case = read_case(reference / "oobleck" / "planner" / f"{name}.json")
    tables = places(case)
    best = oobleck_templates(PlaceCosts(tables, tables), {n: [(n,)] for n in case.templates})
    values = {n: oobleck_value(stage_times(tables, template)) for n, template in best.items()}
    for n, theirs in case.templates.items():
        reported = oobleck_value(stage_times(tables, theirs.template))
        assert reported == pytest.approx(theirs.reported_ms * PS_PER_MS, rel=1e-12)
        assert values[n] <= reported
    if name == "L24_N24_G8":
        assert (best[22].num_stages, values[22]) == (24, 833_752_000_000)
