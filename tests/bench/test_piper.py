"""Piper's problem: dynamic program and CP-SAT agree, with each other and with what is published."""

import json
from pathlib import Path

import pytest

from bench.piper import EQUAL, read_problem
from bench.piper_problem import PS_PER_S, ThroughputSearch
from tests.seeds import one_each


@pytest.mark.parametrize("number", one_each(range(13), 13))
def test_published_value_is_the_optimum(number: int, reference: Path) -> None:
    """Neither better nor worse than Piper's public program; no plan where it has none."""
    case = json.loads((reference / "piper" / "expected.json").read_text())["cases"][number]
    graph = json.loads((reference / "piper" / case["file"]).read_text())
    problem = read_problem(graph, case)
    found = ThroughputSearch(problem).solve()
    time_s = None if found is None else found.time_ps / PS_PER_S
    assert time_s == (None if case["tps"] is None else pytest.approx(case["tps"], rel=EQUAL))
    # A longer model repeats the last layer but one, none of which reads the mask
    longer = read_problem(graph, case | {"transformers": 96})
    more = 96 - case["transformers"]
    assert len(longer.operators) == len(problem.operators) + more
    assert len(longer.edges) == len(problem.edges) + more
