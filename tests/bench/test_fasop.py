"""The comparison with FASOP: its plans as ours, and that none of them is better."""

from pathlib import Path
from typing import Any

import pytest

from bench.fasop import CASES, contradictions, judge, plans, read_plan, read_published, their_space
from bench.records import INSTANCES
from formulations.instance.load import load_instance
from formulations.space import configs
from formulations.units import seconds
from solver.search.driver import solve

HETERO_SMALL = load_instance(INSTANCES / "hetero_small.yaml")  # a100 is node 0, a10 are 1 to 3
#: Four stages of four replicas, the A100 node second: the head is on an A10.
ENTRY: dict[str, Any] = {
    "placement": ["A10 node", "A100 node", "A10 node", "A10 node"],
    "tp": 1,
    "dp": 4,
    "pp": 4,
    "mbs": 8,
    "num_microbatches": 8,
    "partition": [6, 9, 6, 5],
    "step_time_s": 0.9,
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mbs": 64, "num_microbatches": 1}, "configuration not in the plan space"),
        ({"partition": [6, 9, 10, 1]}, "no block on stage 3"),
        ({"mbs": 32, "num_microbatches": 2, "partition": [20, 2, 2, 2]}, "memory of stage 0: "),
    ],
)
def test_what_keeps_a_plan_out_is_named(changes: dict[str, Any], reason: str) -> None:
    narrow = their_space(HETERO_SMALL)
    judged = judge(narrow, read_plan(narrow, ENTRY | changes))
    assert any(words.startswith(reason) for words in judged.outside)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_published_plan_is_better(case: str, reference: Path) -> None:
    """By the simulator, against the proved optimum; each is of FASOP's own plan space."""
    instance = load_instance(INSTANCES / f"{CASES[case]}.yaml")
    narrow = their_space(instance)
    known = set(configs(narrow))
    assert all(
        read_plan(narrow, entry).config in known for entry in read_published(reference, case)
    )
    if not case.startswith("bert"):
        return
    result = solve(instance)
    assert result.status == "optimal"
    assert result.step_time_ns is not None
    best_s = seconds(result.step_time_ns)
    records = plans(case, {"step_time_s": best_s, "bound_s": best_s}, reference)
    assert len(records) >= 5
    assert contradictions(records) == []
    assert all(record["above_ours"] >= 0 for record in records)
