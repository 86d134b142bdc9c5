"""Piper's published values, on its own graph and objective."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.piper import EQUAL, contradicted, line, read_problem
from bench.piper_problem import PS_PER_S
from bench.piper_search import ThroughputSearch
from tests.seeds import one_each


@pytest.mark.parametrize("number", one_each(range(13), 13))
def test_published_value_is_the_optimum(number: int, reference: Path) -> None:
    """Neither better nor worse than Piper's public program; no plan where it has none."""
    case = json.loads((reference / "piper" / "expected.json").read_text())["cases"][number]
    graph = json.loads((reference / "piper" / case["file"]).read_text())
    found = ThroughputSearch(read_problem(graph, case)).solve()
    if case["tps"] is None:
        assert found is None
        return
    assert found is not None
    assert found.time_ps / PS_PER_S == pytest.approx(case["tps"], rel=EQUAL)


def test_longer_model_repeats_one_layer(reference: Path) -> None:
    """96 layers: 64 copies of the last layer but one in a row, none of which reads the mask."""
    expected = json.loads((reference / "piper" / "expected.json").read_text())["cases"]
    case = next(case for case in expected if case["transformers"] == 96)
    graph = json.loads((reference / "piper" / case["file"]).read_text())
    problem = read_problem(graph, case)
    short = read_problem(graph, case | {"transformers": 32})
    assert len(problem.operators) == len(short.operators) + 64
    assert len(problem.edges) == len(short.edges) + 64
    assert problem.operators[-1] == short.operators[34]


@pytest.mark.parametrize(
    ("ours", "published", "says", "wrong"),
    [
        (1.0, 1.0, "infeasible", False),
        (0.9, 1.0, "unknown", False),
        (1.1, 1.0, "infeasible", True),
        (1.0, 1.0, "optimal", True),
        (None, 1.0, "unknown", True),
        (None, None, "unknown", False),
    ],
)
def test_contradictions(ours: Any, published: Any, says: str, wrong: bool) -> None:
    """A published value below ours, or a shorter plan of CP-SAT's, fails the run."""
    case = {"transformers": 32, "k": 8, "mem_bytes": 2**30}
    figures = {"case": case, "ours_s": ours, "published_s": published, "cpsat_says": says}
    figures |= {"cpu_s": 0.1, "stages": [[2, 1, 1]]}
    assert contradicted(figures) is wrong
    assert line(figures).startswith("32 layers, 8 GPUs of 1 GiB: ")
