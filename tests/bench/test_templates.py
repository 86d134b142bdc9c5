"""The benchmark of templates: what it reads and compares."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.planner import places, read_case
from bench.templates import generated, quality

LAYER = {
    "layer_index": 0,
    "forward": 1.0001,
    "backward": 3,
    "allreduce_in_node": {"1": 0, "2": 0.5, "8": 7},
    "mem_required": [1, 1],
}


def template(nodes: int, *ends: int) -> dict[str, Any]:
    """A template of the file, two GPUs a stage."""
    stages = [{"layers": [ends[k - 1] if k else 0, e], "num_gpus": 2} for k, e in enumerate(ends)]
    return {"num_nodes": nodes, "iteration_time_reported_ms": 1.0 * nodes, "stages": stages}


def test_quality_compares_both_objectives(tmp_path: Path) -> None:
    """1.0001 ms on 2 GPUs: 0.50005 + 0.5 of all-reduce; 3 ms: 1.5 + 0.5. All in picoseconds.

    t = 3.00005 ms a layer. Of 2 nodes theirs puts two layers second, ours two layers first.
    Theirs: stages t, 2 t: 3 t + (4 + 1 + 1) 2 t + 2 t = 17 t. Ours: stages 2 t, t: 3 t + (4 + 0 +
    1) 2 t + 3 t = 16 t.
    """
    content = {
        "case": {"gpus_per_node": 2, "max_nodes": 2},
        "planning_wall_s": 1.5,
        "profile": [LAYER] * 3,
        "templates": [template(1, 3), template(2, 1, 3)],
    }
    path = tmp_path / "L3.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    case = read_case(path)
    assert case.layers[0].times_ps(2) == (1_000_050_000, 2_000_000_000)
    assert places(case).forward[1, 0, 3] == 3 * 1_000_050_000
    rows = quality(case, generated(case, 4, 10, 1), 4)["rows"]
    assert rows[1]["public_value_ms"] == pytest.approx(17 * 3.00005)
    assert rows[1]["value_ms"] <= 16 * 3.00005 + 1e-9
    assert rows[1]["step_ratio"] >= 1
