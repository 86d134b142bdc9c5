"""Names in machine-readable output that scripts rely on. Adding is fine, renaming is not."""

import json
import re
from typing import get_args

import pytest
from typer.testing import CliRunner

from formulations.instance.instance import Instance, Limits, Objective, SearchSpace
from formulations.instance.schema import InstanceFile, LimitsFile, ObjectiveFile, SearchFile
from solver.cli import app
from solver.document import to_json
from solver.result import Proof, Status, Termination
from tests.hand_made import document_of, heuristic_result, pipelined_result, planless_result

TOP = {
    "schema_version",
    "hetplan_version",
    "status",
    "termination",
    "method",
    "requested_gap",
    "seed",
    "minimize",
    "target",
    "other_targets",
    "step_time_s",
    "lower_bound_s",
    "gap",
    "critical_path",
    "rounding_error_s",
    "runtime_s",
    "throughput_sequences_per_s",
    "model_flop_per_s_per_gpu",
    "mfu",
    "price_usd_per_hour",
    "cost_usd_per_step",
    "training_cost_usd",
    "renting",
    "time_sources",
    "shape",
    "node_order",
    "idle_nodes",
    "replicas",
    "shapes",
    "closed_shapes",
    "instance",
    "digest",
}
SHAPE = {"degrees", "dp", "pp", "micro_batch", "schedule", "recompute", "zero", "nodes_used"}
STAGE = {
    "layers",
    "node",
    "gpus",
    "gpu_type",
    "degrees",
    "forward_s",
    "backward_s",
    "send_forward_s",
    "send_backward_s",
    "gradient_sync_s",
    "embedding_sync_s",
    "optimizer_s",
    "memory_bytes",
    "memory_limit_bytes",
    "memory",
}
PATH = {"compute_s", "transfers_s", "gradient_sync_s", "embedding_sync_s", "optimizer_s"}
MEMORY = {
    "weights_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "activations_bytes",
    "buffers_bytes",
    "reserve_bytes",
}


def fields() -> dict[str, object]:
    """The object that `solve --json` prints for a plan."""
    loaded = json.loads(to_json(document_of(pipelined_result())))
    assert isinstance(loaded, dict)
    return loaded


def test_names_of_the_object() -> None:
    """All names of schema version 8 are there."""
    assert fields()["schema_version"] == 9
    assert set(fields()) >= TOP


def test_names_of_the_shape() -> None:
    """Degrees, micro-batch and strategies."""
    shape = fields()["shape"]
    assert isinstance(shape, dict)
    assert set(shape) >= SHAPE


def test_names_of_what_closed_the_shapes() -> None:
    """How many there are, how many are open, and how many were closed by what."""
    shapes = fields()["shapes"]
    assert isinstance(shapes, dict)
    assert set(shapes) >= {"total", "open", "closed_by"}
    assert set(get_args(Proof)) >= set(shapes["closed_by"])
    assert set(get_args(Proof)) >= {"memory", "limit", "work", "pipeline"}
    assert set(get_args(Proof)) >= {"enumeration", "cpsat", "milp"}


def test_names_of_replicas_and_stages() -> None:
    """A list of replicas, each with micro-batches and a list of stages."""
    replicas = fields()["replicas"]
    assert isinstance(replicas, list)
    for replica in replicas:
        assert set(replica) >= {"micro_batches", "stages"}
        for stage in replica["stages"]:
            assert set(stage) >= STAGE
            assert set(stage["memory"]) >= MEMORY


def test_names_of_the_critical_path() -> None:
    """The parts that a step consists of."""
    path = fields()["critical_path"]
    assert isinstance(path, dict)
    assert set(path) >= PATH


def test_layers_are_half_open_and_cover_the_chain() -> None:
    """[start, end) of stage k + 1 starts where stage k ends."""
    result = pipelined_result()
    replicas = fields()["replicas"]
    assert isinstance(replicas, list)
    for replica in replicas:
        ends = [0, *(stage["layers"][1] for stage in replica["stages"])]
        assert [stage["layers"][0] for stage in replica["stages"]] == ends[:-1]
        assert ends[-1] == len(result.instance.workload.layers)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status.OPTIMAL, "optimal"),
        (Status.FEASIBLE, "feasible"),
        (Status.INFEASIBLE, "infeasible"),
        (Status.UNKNOWN, "unknown"),
    ],
)
def test_words_for_status(status: Status, text: str) -> None:
    """Lower-case words."""
    results = {Status.OPTIMAL: pipelined_result(), Status.FEASIBLE: heuristic_result()}
    result = results.get(status) or planless_result(status, Termination.CLOSED)
    assert json.loads(to_json(document_of(result)))["status"] == text


@pytest.mark.parametrize(
    ("termination", "text"),
    [
        (Termination.CLOSED, "closed"),
        (Termination.TIME_LIMIT, "time_limit"),
        (Termination.INTERRUPTED, "interrupted"),
        (Termination.HEURISTIC, "heuristic"),
    ],
)
def test_words_for_termination(termination: Termination, text: str) -> None:
    """Lower-case words."""
    document = document_of(planless_result(Status.UNKNOWN, termination))
    assert json.loads(to_json(document))["termination"] == text


def test_names_of_a_workload() -> None:
    """`workload --json` has parameters, settings, FLOPs and bytes per layer."""
    done = CliRunner().invoke(app, ["workload", "bert-large", "--json"])
    fields = json.loads(done.stdout)
    assert set(fields) >= {
        "name",
        "source",
        "parameters",
        "sequence_length",
        "global_batch",
        "forward_flops_per_sequence",
        "training_flops_per_sequence",
        "layers",
    }
    assert set(fields["layers"][0]) >= {
        "kind",
        "count",
        "parameters",
        "parameter_bytes",
        "activation_bytes_per_sequence",
        "forward_flops_per_sequence",
    }


def test_names_of_the_instance_are_those_of_its_file() -> None:
    """What YAML calls `zero` or `micro_batch`, a plan file does too; limits add their unit."""
    assert {*InstanceFile.model_fields, "fused"} == set(Instance.model_fields)
    assert set(SearchFile.model_fields) == set(SearchSpace.model_fields)
    assert set(ObjectiveFile.model_fields) == set(Objective.model_fields)
    units = r"_s$|_bytes$|_usd(?=_per)"
    names = {re.sub(units, "", name) for name in Limits.model_fields}
    assert names == set(LimitsFile.model_fields)
