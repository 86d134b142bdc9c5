"""The verifier's own view of a plan: constraints, costs, claims."""

import subprocess
import sys
from typing import Any

import pytest

from formulations.instance import Instance
from solver.document import PlanDocument
from solver.result import Termination
from solver.verify import verify_document
from tests.certified import certified_document
from tests.certified_cases import CASES
from tests.random_configs import zoned
from tests.resealed import forged
from tests.seeds import one_each
from tests.small_instances import random_instance

FORBIDDEN = ("solver.search", "solver.enumeration", "solver.heuristics", "formulations.models")


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    """What is found wrong with a forged file."""
    return verify_document(forged(document, changes)).problems


@pytest.mark.parametrize("seed", one_each(range(40), 8))
def test_brute_force_optimum_is_verified(seed: int) -> None:
    """Optima found by trying every plan, timed by plain recursion, hold with their proofs."""
    assert verify_document(certified_document(random_instance(seed))).problems == ()


def variant(instance: Instance, **search: object) -> Instance:
    """The instance with other search fields."""
    return instance.but(search=search)


@pytest.mark.parametrize("seed", one_each(range(40), 15))
def test_brute_force_optimum_over_zones_is_verified(seed: int) -> None:
    """So do those of nodes in several zones: no closed form exceeds what the zones cost."""
    document = certified_document(zoned(random_instance(seed), seed))
    assert verify_document(document).problems == ()


def test_transfer_between_nodes_shares_the_slower_link() -> None:
    """Two flows of 5 MB enter the slow node at 1.5 GB/s: 10/1500 s + 10 us = 6.676667 ms."""
    document = CASES["pipelined"]()
    sends = {replica.stages[0].send_forward_s for replica in document.replicas}
    assert sends == {0.006676667}
    assert verify_document(document).ok


def test_gradient_rings_share_the_border_of_a_node() -> None:
    """Two tensor ranks, so two rings over two nodes at 0.9 of 1.5 GB/s.

    Parameters per rank: the vocabulary's 500 rows padded to 512 (a multiple of 128 * 2), halved,
    times 2000; 53 million shared by two; 7 per layer: 512,000 + 26,500,028 = 27,012,028 with the
    head tied. Reduce-scatter of 4 bytes, a quarter of it hidden, and all-gather of 2 bytes each,
    half of them sent: 2 * 27,012,028 * 5 / 2 / (0.9 * 1.5e9) s = 0.1000445481 s, four layers
    rounded up twice; starts of 7.5 and 10 us.
    """
    document = CASES["tensor_parallel"]()
    assert document.config is not None
    assert document.config.zero == 1
    [sync] = {stage.gradient_sync_s for one in document.replicas for stage in one.stages}
    assert 0.1000620481 <= sync <= 0.1000620481 + 9e-9
    assert verify_document(document).ok


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "degrees": (
        "pipelined",
        {"config.pp": 1},
        "config.dp, pp: found (2, 1), expected one of (2, 2)",
    ),
    "too_many_nodes": ("pipelined", {"config.nodes_used": [2, 0]}, "config.nodes_used"),
    "group_across_nodes": (
        "pipelined",
        {"config.degrees.0.tp": 4, "config.dp": 1, "config.pp": 1},
        "config.degrees: found (Degrees(tp=4, parts=1, cp=1),",
    ),
    "idle_node": ("idle", {"instance.search.idle_nodes": False}, "config.nodes_used"),
    "rent": ("idle", {"instance.limits.max_price_usd_per_hour": 11.9}, "config.nodes_used"),
    "recompute": ("idle", {"instance.search.recompute": ["full"]}, "config.recompute"),
    "schedule": ("idle", {"instance.search.schedule": ["gpipe"]}, "config.schedule"),
    "zero": ("idle", {"instance.search.zero": [1]}, "config.zero"),
    "micro_batch": ("idle", {"instance.search.micro_batch": [2]}, "config.micro_batch"),
    "tensor_parallel": ("idle", {"instance.search.tensor_parallel": [1]}, "config.degrees"),
    "heads": ("tensor_parallel", {"instance.workload.kv_heads": 3}, "config.degrees"),
    "data_parallel": ("idle", {"instance.search.data_parallel": [2]}, "config.dp"),
    "pipeline_parallel": (
        "idle",
        {"instance.search.pipeline_parallel": [2]},
        "config.dp, pp",
    ),
    "unknown_node": ("pipelined", {"node_order.0": "x-0"}, "node_order[0]: found 'x-0'"),
    "node_twice": ("pipelined", {"node_order.1": "fast-0"}, "node_order[1]"),
    "node_missing": ("pipelined", {"node_order": ["fast-0"]}, "node_order: nodes of slow"),
    "equal_names": (
        "pipelined",
        {"instance.cluster.groups.1.name": "fast"},
        "instance.cluster.groups",
    ),
    "wrong_node": (
        "pipelined",
        {"replicas.0.stages.0.node": "slow-0"},
        "replicas[0].stages[0].node",
    ),
    "gpu_twice": ("pipelined", {"replicas.1.stages.0.gpus": [0]}, "replicas[1].stages[0].gpus"),
    "gap_in_layers": (
        "profiled",
        {"replicas.0.stages.1.layers": [2, 4]},
        "replicas[0].stages[1].layers",
    ),
    "layers_missing": (
        "profiled",
        {"replicas.0.stages.1.layers": [3, 3]},
        "replicas[0].stages[1].layers: found (3, 3)",
    ),
    "stage_without_block": (
        "profiled",
        {"instance.search.embedding_only_stages": False},
        "replicas[0].stages[1].layers: found 0 blocks",
    ),
    "two_splits": (
        "pipelined",
        {"replicas.1.stages.0.layers": [0, 1], "replicas.1.stages.1.layers": [1, 4]},
        "replicas[1].stages[0].layers",
    ),
    "batch": (
        "pipelined",
        {"replicas.0.micro_batches": 9},
        "replicas: micro_batches * config.micro_batch",
    ),
    "uneven": (
        "pipelined",
        {
            "instance.search.micro_batches": "even",
            "replicas.0.micro_batches": 2,
            "replicas.1.micro_batches": 4,
        },
        "replicas[1].micro_batches: found 4, expected 2",
    ),
    "step_time_limit": (
        "pipelined",
        {"instance.limits.max_step_time_s": 0.01},
        "instance.limits.max_step_time_s",
    ),
    "cost_limit": (
        "pipelined",
        {"instance.limits.max_cost_usd_per_step": 1e-9},
        "instance.limits.max_cost_usd_per_step",
    ),
    "figure_without_plan": ("infeasible", {"step_time_s": 1.0}, "step_time_s"),
    "optimal_without_plan": ("infeasible", {"status": "optimal"}, "status: found optimal"),
    "doubtful_infeasibility": ("infeasible", {"status": "unknown"}, "status: found unknown"),
    "false_optimality": ("interrupted", {"status": "optimal"}, "status: found optimal"),
    "false_modesty": ("pipelined", {"status": "feasible"}, "status: found feasible"),
    "gap": ("interrupted", {"gap": 0.1}, "gap: found 0.1"),
    "bound": ("interrupted", {"lower_bound_s": 0.03}, "lower_bound_s: found 0.03"),
    "no_curve": (
        "profiled",
        {"instance.cluster.groups.0.gpu.name": "x"},
        "instance: found figures",
    ),
    "no_peak": ("pipelined", {"instance.workload.precision": "fp16"}, "instance: found figures"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_constraint_is_named(name: str) -> None:
    """One line starts with the field that breaks the constraint."""
    case, changes, start = BROKEN[name]
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


def memory_changes(document: PlanDocument, limit: int) -> dict[str, Any]:
    """Both GPU types get this much memory; the limits in the stages follow."""
    stages = {
        f"replicas.{r}.stages.{k}.memory_limit_bytes": limit
        for r, replica in enumerate(document.replicas)
        for k in range(len(replica.stages))
    }
    groups = range(len(document.instance.cluster.groups))
    return stages | {f"instance.cluster.groups.{j}.gpu.memory_bytes": limit for j in groups}


@pytest.mark.parametrize(("spare", "expected"), [(0, True), (-1, False)])
def test_memory_may_be_filled_to_the_last_byte(spare: int, expected: bool) -> None:
    """The fullest GPU needs all of its memory, or one byte more than it has."""
    document = CASES["idle"]()
    need = max(stage.memory_bytes for one in document.replicas for stage in one.stages)
    found = problems(document, memory_changes(document, need + spare))
    assert (not any("memory_bytes: found" in line for line in found)) is expected


def test_digest_alone_tells_of_a_recorded_field() -> None:
    """A changed run time breaks nothing but the digest."""
    changed = CASES["idle"]().but(runtime_s=0.25)
    [line] = verify_document(changed).problems
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
    bad = (*FORBIDDEN, "solver.backends", "ortools", "pulp", "highspy")
    assert [name for name in loaded if name.startswith(bad)] == []
