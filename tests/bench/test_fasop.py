"""The comparison with FASOP: its plans as ours, its table, and that none of them is better."""

from pathlib import Path
from typing import Any

import pytest

from bench.fasop import contradictions, fastest, plans
from bench.fasop_plans import CASES, judge, read_plan, read_published, their_space
from bench.records import INSTANCES
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.space import configs
from formulations.units import seconds
from solver.search.driver import solve


def entry(**changes: Any) -> dict[str, Any]:
    """Four stages of four replicas, the A100 node second: the head is on an A10."""
    return {
        "placement": ["A10 node", "A100 node", "A10 node", "A10 node"],
        "tp": 1,
        "dp": 4,
        "pp": 4,
        "mbs": 8,
        "num_microbatches": 8,
        "partition": [6, 9, 6, 5],
        "step_time_s": 0.9,
    } | changes


@pytest.fixture(scope="module")
def hetero_small() -> Instance:
    """Groups a100 (node 0) and a10 (nodes 1 to 3)."""
    return load_instance(INSTANCES / "hetero_small.yaml")


def test_plan_keeps_order_degrees_and_split(hetero_small: Instance) -> None:
    """Stage 1 of every replica is on node 0; 6, 9, 6, 5 layers end at 6, 15, 21, 26."""
    plan = read_plan(hetero_small, entry())
    assert plan.node_order == (1, 0, 2, 3)
    assert plan.config.nodes_used == (1, 3)
    assert judge(hetero_small, plan).outside == ()
    for r, replica in enumerate(plan.replicas):
        assert [stage.layers for stage in replica.stages] == [(0, 6), (6, 15), (15, 21), (21, 26)]
        assert replica.stages[1].group.node == 0
        assert replica.stages[1].group.gpus == (r,)
        assert replica.micro_batches == 8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mbs": 64, "num_microbatches": 1}, "configuration not in the plan space"),
        ({"partition": [6, 9, 10, 1]}, "no block on stage 3"),
        ({"mbs": 32, "num_microbatches": 2, "partition": [20, 2, 2, 2]}, "memory of stage 0: "),
    ],
)
def test_what_keeps_a_plan_out_is_named(
    hetero_small: Instance, changes: dict[str, Any], reason: str
) -> None:
    """A size that is not a candidate, a stage with the head alone, too much for an A10."""
    narrow = their_space(hetero_small)
    judged = judge(narrow, read_plan(narrow, entry(**changes)))
    assert any(one.startswith(reason) for one in judged.outside)
    assert judged.step_time_ns > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_all_published_plans_can_be_read(case: str, reference: Path) -> None:
    """Each is one of the configurations of FASOP's own plan space."""
    instance = load_instance(INSTANCES / f"{CASES[case]}.yaml")
    narrow = their_space(instance)
    known = set(configs(narrow))
    found = read_published(reference, case)
    assert len(found) >= 5
    for one in found:
        assert read_plan(narrow, one).config in known


@pytest.mark.slow
@pytest.mark.parametrize("case", ["bert_homo", "bert_hetero"])
def test_no_published_plan_is_better(case: str, reference: Path) -> None:
    """By the simulator, against the proved optimum."""
    found = solve(load_instance(INSTANCES / f"{CASES[case]}.yaml"))
    assert found.status == "optimal"
    assert found.step_time_ns is not None
    best_s = seconds(found.step_time_ns)
    records = plans(case, {"step_time_s": best_s, "bound_s": best_s}, reference)
    assert contradictions(records) == []
    assert all(one["above_ours"] >= 0 for one in records)


def test_only_a_faster_plan_that_we_could_have_chosen_is_a_contradiction() -> None:
    """0.1 % below ours counts, unless it does not fit memory; of two runs the faster counts."""
    found = [(0.001, []), (-0.001, ["memory of stage 0: 30.0 of 22.2 GiB"]), (-0.001, [])]
    records = [
        {
            "kind": "plan",
            "case": "x",
            "step_time_s": 1.0,
            "outside": outside,
            "above_ours": above,
            "above_bound": above,
        }
        for above, outside in found
    ]
    assert len(contradictions(records)) == 1
    assert fastest([{"search_s": 0.5}, {"search_s": 0.4}], "search_s") == 0.4
