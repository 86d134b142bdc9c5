"""The splits benchmark: its file format, and its results against brute force."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import splits
from bench.pipelines import read_pipelines
from formulations.errors import InstanceError


def case_of(**changes: Any) -> dict[str, Any]:
    """Three layers on two stages, two micro-batches."""
    return {
        "name": "small",
        "micro_batches": 2,
        "layer_forward": [1, 2, 3],
        "layer_backward": [2, 4, 6],
        "stage_slowness": [1, 2],
        "send_forward": [5],
        "send_backward": [7],
    } | changes


def write(path: Path, *cases: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"note": "", "cases": cases}), encoding="utf-8")
    return path


@pytest.mark.slow
def test_reference_optima(reference: Path) -> None:
    """All 26 pipelines of the reference, up to 32 stages, have the optimum proved there."""
    cases = read_pipelines(reference / "splits" / "optimal.json")
    assert len(cases) == 26
    for case in cases:
        found = splits.solve(case, gap=0.0, time_limit_s=None, repeats=1)
        assert found.step_time == found.bound == case.optimal_step_time, case.name


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([{}], "cases[0] name: "),
        ([case_of(send_forward=[])], "(small): send_forward has 0 entries, 1"),
        ([case_of(layer_forward=[1], layer_backward=[1])], "(small): 2 stages cannot each have"),
        ([case_of(micro_batches=1 << 50)], "(small): a step may take "),
    ],
)
def test_bad_file_is_one_line(cases: list[dict[str, Any]], expected: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=re.escape(expected)):
        read_pipelines(write(tmp_path / "x.json", *cases))
