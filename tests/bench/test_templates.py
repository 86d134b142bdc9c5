"""The benchmark of templates: what it reads, compares and says."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bench.planner import PlannerCase, PlannerLayer, places, read_case
from bench.templates import costs_of, generated, latency_line, quality, quality_line

LAYER = {
    "layer_index": 0,
    "forward": 1.0001,
    "backward": 3,
    "allreduce_in_node": {"1": 0, "2": 0.5, "8": 7},
    "mem_required": [1, 1],
}


@pytest.fixture
def case(tmp_path: Path) -> PlannerCase:
    """Three equal layers on up to 2 nodes of 2 GPUs, with templates of one and two stages."""

    def stage(start: int, end: int) -> dict[str, Any]:
        return {"layers": [start, end], "num_gpus": 2}

    content = {
        "case": {"gpus_per_node": 2, "max_nodes": 2},
        "planning_wall_s": 1.5,
        "profile": [LAYER] * 3,
        "templates": [
            {"num_nodes": 1, "iteration_time_reported_ms": 1.0, "stages": [stage(0, 3)]},
            {
                "num_nodes": 2,
                "iteration_time_reported_ms": 2.0,
                "stages": [stage(0, 1), stage(1, 3)],
            },
        ],
    }
    path = tmp_path / "L3.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_case(path)


def test_times_are_whole_picoseconds(case: PlannerCase) -> None:
    """1.0001 ms on 2 GPUs: 0.50005 + 0.5 of all-reduce; 3 ms: 1.5 + 0.5."""
    assert case.layers[0] == PlannerLayer(
        Fraction("1.0001"), Fraction(3), {1: Fraction(0), 2: Fraction("0.5"), 8: Fraction(7)}
    )
    assert case.layers[0].times_ps(2) == (1_000_050_000, 2_000_000_000)
    tables = places(case)
    assert tables.gpus == (1, 2)
    assert tables.forward[1, 0, 3] == 3 * 1_000_050_000
    # No transfers and no memory limit, as that planner knows neither
    several = costs_of(case).several
    assert not several.send.any()
    assert not several.embedding.any()
    assert all(several.fits(x, 10**6)[0, 1:].all() for x in range(2))


def test_quality_compares_both_objectives(case: PlannerCase) -> None:
    """Ours is never above; of 2 nodes theirs puts two layers second, ours two layers first.

    t = 3.00005 ms a layer on 2 GPUs. Theirs: stages t, 2 t: 3 t + (4 + 1 + 1) 2 t + 2 t = 17 t.
    Ours: stages 2 t, t: 3 t + (4 + 0 + 1) 2 t + 3 t = 16 t.
    """
    found = generated(case, 4, 10, 1)
    figures = quality(case, found, 4)
    two = figures["rows"][1]
    assert two["public_value_ms"] == pytest.approx(17 * 3.00005)
    assert two["value_ms"] <= 16 * 3.00005 + 1e-9
    assert two["step_ratio"] >= 1
    assert figures["public_planner_wall_s"] == 1.5
    text = quality_line("L3", found.figures | figures)
    assert "never above in 2 of 2, below at [2]" in text
    assert "2 of 2 step times optimal" in text
    # A case that the public planner did not finish
    row = {"layers": 3, "nodes": 2, "gpus_per_node": 2, "paper_s": 68.5}
    text = latency_line(row | {"public_planner_wall_s": None}, found.figures)
    assert text.startswith("3 layers, 2 nodes of 2: ")
    assert "(paper 68.5 s, public planner not finished)" in text
