"""Megatron-Bridge's recipe: applied to a configuration, its fields are the plan's."""

import sys
from types import ModuleType
from typing import Any

import pytest

from solver.export import megatron_bridge
from solver.export.job import Job
from tests.export.stored import JOBS, check_exports
from tests.recorded import as_recorded

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


def test_recipes_set_the_recorded_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied to a configuration, its fields are the plan's; a model of other layers is refused.

    Before, a recipe's own bf16_mixed and overlaps overwrote what the plan says in ddp, and data of
    another length than the model's, or what excludes a layout, ended jobs at start.
    """
    figures = {}
    for name in ("uneven", "chunks", "fp16", "fp32", "fused"):
        for part, fields in vars(applied(JOBS[name], 12, monkeypatch)).items():
            if isinstance(fields, Fields):
                told = {field: str(value) for field, value in vars(fields).items()}
                figures[f"{name} {part}"] = [
                    f"{f} = {told[f]}" for f in sorted(told) if f[0] != "_"
                ]
    as_recorded("recipes", figures)
    with pytest.raises(ValueError, match="12 layers, not 13"):
        applied(JOBS["chunks"], 13, monkeypatch)
