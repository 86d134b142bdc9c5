"""Megatron-Bridge's recipe: applied to a configuration, its fields are the plan's."""

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from solver.export import megatron_bridge
from tests.export.stored import check_exports
from tests.export_cases import JOBS
from tests.recorded import as_recorded

test_files_are_as_stored = check_exports("megatron-bridge")
MODULES = (
    *("torch", "megatron", "megatron.bridge", "megatron.bridge.training"),
    "megatron.bridge.training.comm_overlap",
    "megatron.bridge.training.mixed_precision",
)


def test_recipes_set_the_recorded_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied to a configuration, its fields are the plan's; a model of other layers is refused.

    Before, a recipe's own bf16_mixed and overlaps overwrote what the plan says in ddp, and data of
    another length than the model's, or what excludes a layout, ended jobs at start.
    """
    formats = {name: name for name in ("bfloat16", "float16", "float32")}
    kinds = dict.fromkeys(("CommOverlapConfig", "MixedPrecisionConfig"), dict)
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, MagicMock(**formats, **kinds))
    figures = {}
    for name in ("uneven", "chunks", "fp16", "fp32", "fused"):
        scope: dict[str, Any] = {}
        exec(megatron_bridge.files(JOBS[name])[megatron_bridge.RECIPE], scope)
        parts = {part: SimpleNamespace() for part in ("train", "ddp", "optimizer", "dist")}
        model = SimpleNamespace(num_layers=12, seq_length=4096)
        dataset = SimpleNamespace(sequence_length=4096)
        cfg = scope["apply"](SimpleNamespace(model=model, dataset=dataset, **parts))
        for part, fields in vars(cfg).items():
            told = fields if isinstance(fields, dict) else vars(fields)
            figures[f"{name} {part}"] = [f"{field} = {told[field]}" for field in sorted(told)]
    as_recorded("recipes", figures)
    cfg.model.num_layers = 13
    with pytest.raises(ValueError, match="12 layers, not 13"):
        scope["apply"](cfg)
