"""Megatron-Bridge's recipe: applied to a configuration, its fields are the plan's."""

import sys
from types import ModuleType
from typing import Any

import pytest

from solver.export import megatron_bridge
from solver.export.job import Job
from tests.export.stored import JOBS, check_exports
from tests.export_cases import CHUNKS, UNEVEN

test_files_are_as_stored = check_exports("megatron-bridge")


class Fields(ModuleType):
    """A configuration or a module that takes every field."""

    def __init__(self, **fields: object) -> None:
        super().__init__("fields")
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def applied(job: Job, layers: int, monkeypatch: pytest.MonkeyPatch) -> Fields:
    """A configuration after the recipe of a job, without torch and Megatron-Bridge."""
    training = "megatron.bridge.training"
    torch = Fields(bfloat16="bfloat16", float16="float16", float32="float32")
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("megatron", "megatron.bridge", training):
        monkeypatch.setitem(sys.modules, name, Fields())
    for name in ("comm_overlap.CommOverlapConfig", "mixed_precision.MixedPrecisionConfig"):
        module, kind = name.split(".")
        monkeypatch.setitem(sys.modules, f"{training}.{module}", Fields(**{kind: Fields}))
    scope: dict[str, Any] = {}
    exec(compile(megatron_bridge.files(job)[megatron_bridge.RECIPE], "x.py", "exec"), scope)
    parts = ("train", "ddp", "optimizer", "dist")
    model, dataset = Fields(num_layers=layers, seq_length=4096), Fields(sequence_length=4096)
    cfg = Fields(model=model, dataset=dataset, **{name: Fields() for name in parts})
    result: Fields = scope["apply"](cfg)
    assert result is cfg
    return result


def test_recipe_of_megatron_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied to a configuration, its fields are the plan's; a model of other layers is refused."""
    cfg = applied(CHUNKS, 12, monkeypatch)
    assert cfg.model.pipeline_model_parallel_layout == "Et|t*2|t|t*2|t|t|t*2|t*2L"
    assert cfg.model.virtual_pipeline_model_parallel_size == 2
    assert (cfg.train.global_batch_size, cfg.train.micro_batch_size) == (16, 2)
    with pytest.raises(ValueError, match="12 layers, not 13"):
        applied(CHUNKS, 13, monkeypatch)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_bug_recipe_left_precision_and_overlap_to_megatron_bridge(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe's own bf16_mixed and overlaps would overwrite what the plan says in ddp."""
    cfg = applied(JOBS[{"bf16": "uneven"}.get(precision, precision)], 12, monkeypatch)
    weights = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[precision]
    formats = cfg.mixed_precision.params_dtype, cfg.mixed_precision.pipeline_dtype
    assert formats == (weights, weights)
    assert getattr(cfg.mixed_precision, precision)
    assert cfg.mixed_precision.grad_reduce_in_fp32
    assert not cfg.comm_overlap.overlap_grad_reduce


def test_bug_megatron_bridge_ended_jobs_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of another length than the model's, and what excludes a layout, are set right."""
    cfg = applied(UNEVEN, 12, monkeypatch)
    assert cfg.dataset.sequence_length == cfg.model.seq_length == 1024
    assert not cfg.model.account_for_embedding_in_pipeline_split
    assert cfg.model.num_layers_in_first_pipeline_stage is None
