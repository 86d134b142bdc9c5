"""GPUs and workloads in words say what the catalogue holds, with every source."""

import json
from pathlib import Path

from formulations.instance import Workload
from formulations.instance.catalogue import gpu_catalogue, workload_catalogue
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.transformer import build_workload
from solver.report.catalogue import (
    gpu_report,
    trained_parameters,
    workload_json,
    workload_list,
    workload_report,
)
from solver.report.text import chain_text
from tests.command_line import output, printed

CONFIGS = Path(__file__).resolve().parent.parent / "data" / "huggingface"


def alternating() -> Workload:
    """A chain in which blocks of two kinds take turns."""
    config = json.loads((CONFIGS / "gpt-oss-20b.json").read_text(encoding="utf-8"))
    return build_workload(
        sizes_from_config(config, "c"),
        name="w",
        source="t",
        sequence_length=256,
        global_batch=8,
        flash_attention=True,
    )


def test_workload_text_and_json_agree() -> None:
    """Parameters, FLOPs of a step and layers; states are of 18 bytes a parameter in bf16 here."""
    workload = workload_catalogue()["bert-large"].workload("bert-large")
    fields = workload_json(workload)
    text = printed(*workload_report(workload))
    assert f"{fields['parameters']:,}" in text
    assert fields["trained_parameters"] == trained_parameters(workload)
    step_flops = workload.training_flops * workload.global_batch
    assert f"{step_flops / 1e12:.4g} TFLOP per step" in text or "PFLOP per step" in text
    layers = fields["layers"]
    assert isinstance(layers, list)
    assert sum(layer["count"] for layer in layers) == len(workload.layers)
    each = workload.parameter_bytes + workload.gradient_bytes
    for layer in layers:
        parameters = layer["parameters"]
        states = each * parameters + workload.state_bytes(parameters)
        assert layer["training_state_bytes"] == states
        assert layer["parameter_bytes"] == parameters * workload.parameter_bytes


def test_layers_that_alternate_are_counted() -> None:
    """Layers of one kind stand in one row, where others lie between them, too; runs are counted."""
    workload = alternating()
    assert "12 of 0-22  sliding_block" in printed(*workload_report(workload))
    assert chain_text(workload) == "1 embedding, 12 sliding_block, 12 block, 1 head"


def test_workload_names_what_training_adds() -> None:
    """Parameters of multi-token prediction stand beside those of the published model."""
    text = output("catalogue", CONFIGS / "deepseek-v3.json")
    assert "671,026,404,352 (671,026 million), and 11,610,067,968 that training adds" in text


def test_every_gpu_and_workload_has_its_source() -> None:
    """Peaks in TFLOP/s, "-" where a GPU has none, sources below."""
    gpus = gpu_catalogue()
    text = " ".join(printed(*gpu_report(gpus)).split())
    workloads = [entry.workload(name) for name, entry in workload_catalogue().items()]
    listed = " ".join(printed(*workload_list(workloads)).split())
    for gpu in gpus.values():
        assert gpu.source in text
        assert gpu.memory_source in text
        efficiency = "measured" if gpu.measured_in else "assumed"
        besides = (
            f" ({', '.join(gpu.assumed_efficiency)} assumed)" if gpu.assumed_efficiency else ""
        )
        assert f"; efficiency {efficiency}{besides}: {gpu.efficiency_source}" in text
    assert "A100-80 79.25 GiB 2,039 GB/s 300 GB/s 19.5 156 312 312 -" in text
    for workload in workloads:
        assert workload.source in listed
    assert json.loads(json.dumps(workload_json(workloads[0])))["name"] == workloads[0].name
