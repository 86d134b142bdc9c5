"""The verifier's own view of a plan: constraints, costs, claims."""

import subprocess
import sys
from typing import Any

import pytest

from solver.document import PlanDocument
from solver.result import Termination
from solver.verify import verify_document
from tests.certified_cases import CASES, solved_document
from tests.random_configs import zoned
from tests.resealed import forged
from tests.seeds import one_each
from tests.small_instances import random_instance

FORBIDDEN = ("search", "enumeration", "heuristics", "graph", "bounds", "backends")


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    """What is found wrong with a forged file."""
    return verify_document(forged(document, changes)).problems


@pytest.mark.parametrize("seed", one_each(range(40), 14))
def test_optimum_is_verified_over_zones_too(seed: int) -> None:
    """No closed form exceeds what the zones cost."""
    made = random_instance(seed)
    for instance in (made, zoned(made, seed)):
        assert verify_document(solved_document(instance)).problems == ()


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("pipelined", {"config.pp": 1}, "config.dp, pp: found (2, 1), expected one of (2, 2)"),
    ("pipelined", {"config.nodes_used": [2, 0]}, "config.nodes_used"),
    (
        "pipelined",
        {"config.degrees.0.tp": 4, "config.dp": 1, "config.pp": 1},
        "config.degrees: found (Degrees(tp=4, parts=1, cp=1),",
    ),
    ("idle", {"instance.search.idle_nodes": False}, "config.nodes_used"),
    ("idle", {"instance.limits.max_price_usd_per_hour": 11.9}, "config.nodes_used"),
    ("idle", {"instance.search.recompute": ["full"]}, "config.recompute"),
    ("idle", {"instance.search.schedule": ["gpipe"]}, "config.schedule"),
    ("idle", {"instance.search.zero": [1]}, "config.zero"),
    ("idle", {"instance.search.micro_batch": [2]}, "config.micro_batch"),
    ("idle", {"instance.search.tensor_parallel": [1]}, "config.degrees"),
    ("tensor_parallel", {"instance.workload.kv_heads": 3}, "config.degrees"),
    ("idle", {"instance.search.data_parallel": [2]}, "config.dp"),
    ("idle", {"instance.search.pipeline_parallel": [2]}, "config.dp, pp"),
    ("pipelined", {"node_order.0": "x-0"}, "node_order[0]: found 'x-0'"),
    ("pipelined", {"node_order.1": "fast-0"}, "node_order[1]"),
    ("pipelined", {"node_order": ["fast-0"]}, "node_order: nodes of slow"),
    ("pipelined", {"instance.cluster.groups.1.name": "fast"}, "instance.cluster.groups"),
    ("pipelined", {"replicas.0.stages.0.node": "slow-0"}, "replicas[0].stages[0].node"),
    ("pipelined", {"replicas.1.stages.0.gpus": [0]}, "replicas[1].stages[0].gpus"),
    ("profiled", {"replicas.0.stages.1.layers": [2, 4]}, "replicas[0].stages[1].layers"),
    (
        "profiled",
        {"replicas.0.stages.1.layers": [3, 3]},
        "replicas[0].stages[1].layers: found (3, 3)",
    ),
    (
        "profiled",
        {"instance.search.embedding_only_stages": False},
        "replicas[0].stages[1].layers: found 0 blocks",
    ),
    (
        "pipelined",
        {"replicas.1.stages.0.layers": [0, 1], "replicas.1.stages.1.layers": [1, 4]},
        "replicas[1].stages[0].layers",
    ),
    ("pipelined", {"replicas.0.micro_batches": 9}, "replicas: micro_batches * config.micro_batch"),
    (
        "pipelined",
        {"instance.search.micro_batches": "even", "replicas.1.micro_batches": 4},
        "replicas[1].micro_batches: found 4, expected",
    ),
    ("pipelined", {"instance.limits.max_step_time_s": 0.01}, "instance.limits.max_step_time_s"),
    (
        "pipelined",
        {"instance.limits.max_cost_usd_per_step": 1e-09},
        "instance.limits.max_cost_usd_per_step",
    ),
    ("infeasible", {"step_time_s": 1.0}, "step_time_s"),
    ("infeasible", {"status": "optimal"}, "status: found optimal"),
    ("infeasible", {"status": "unknown"}, "status: found unknown"),
    ("interrupted", {"status": "optimal"}, "status: found optimal"),
    ("pipelined", {"status": "feasible"}, "status: found feasible"),
    ("interrupted", {"gap": 0.1}, "gap: found 0.1"),
    ("interrupted", {"lower_bound_s": 0.03}, "lower_bound_s: found 0.03"),
    ("profiled", {"instance.cluster.groups.0.gpu.name": "x"}, "instance: found figures"),
    ("pipelined", {"instance.workload.precision": "fp16"}, "instance: found figures"),
]


@pytest.mark.parametrize(("case", "changes", "start"), BROKEN)
def test_broken_constraint_is_named(case: str, changes: dict[str, Any], start: str) -> None:
    """One line starts with the field that breaks the constraint."""
    found = problems(CASES[case](), changes)
    assert [line for line in found if line.startswith(start)], found


@pytest.mark.parametrize("ended", Termination)
@pytest.mark.parametrize("case", ["pipelined", "infeasible", "interrupted"])
def test_bug_how_a_search_ended_was_taken_at_its_word(case: str, ended: Termination) -> None:
    """A log with open configs is not of a search that closed all, nor one without of any other."""
    document = CASES[case]()
    told = "termination is closed: found"
    found = problems(document, {"termination": ended})
    closed = ended is Termination.CLOSED
    assert any(line.startswith(told) for line in found) == (closed != (case != "interrupted"))
    if document.config is not None:
        unproved = {"closed_configs": [], "termination": ended}
        assert any(line.startswith(told) for line in problems(document, unproved)) == closed


@pytest.mark.parametrize(("spare", "expected"), [(0, True), (-1, False)])
def test_memory_may_be_filled_to_the_last_byte(spare: int, expected: bool) -> None:
    """The fullest GPU needs all of its memory, or one byte more than it has."""
    document = CASES["idle"]()
    limit = max(stage.memory_bytes for one in document.replicas for stage in one.stages) + spare
    stages = [(r, k) for r, one in enumerate(document.replicas) for k in range(len(one.stages))]
    changes = {f"replicas.{r}.stages.{k}.memory_limit_bytes": limit for r, k in stages}
    gpus = {f"instance.cluster.groups.{j}.gpu.memory_bytes": limit for j in (0, 1)}
    found = problems(document, changes | gpus)
    assert (not any("memory_bytes: found" in line for line in found)) is expected


def test_digest_alone_tells_of_a_recorded_field() -> None:
    """A changed run time breaks nothing but the digest."""
    [line] = verify_document(CASES["idle"]().but(runtime_s=0.25)).problems
    assert line.startswith("digest: found ")


def test_checked_tells_what_is_proved_again() -> None:
    """Three of four configurations follow from closed forms."""
    checked = verify_document(CASES["idle"]()).checked
    assert "log of 4 configurations: 4 proved again (paths 1, work 3), 0 not" in checked


def test_bug_a_plan_space_far_beyond_the_log_was_listed() -> None:
    """A file may name 10^12 choices of nodes; that some are missing is known after a few."""
    document = CASES["idle"]()
    one, *_ = document.model_dump(mode="json")["instance"]["cluster"]["groups"]
    groups = [one | {"name": name, "nodes": 10**4} for name in "abc"]
    found = problems(document, {"instance.cluster.groups": groups})
    assert any("missing configurations" in problem for problem in found)


def test_verifier_loads_no_model_and_no_engine() -> None:
    """Importing the verifier imports neither search nor models nor a solver library."""
    code = "import sys, solver.verify; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "solver.verify" in loaded
    rooms = *(f"solver.{room}" for room in FORBIDDEN), "formulations.models"
    bad = (*rooms, "ortools", "pulp", "highspy")
    assert [name for name in loaded if name.startswith(bad)] == []
