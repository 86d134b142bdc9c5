"""Megatron-LM: experts that GPUs share or split, each rule just inside and just outside."""

from typing import Any

import pytest

from tests.export_cases import WHOLE_EXPERTS
from tests.targets.test_launcher import refused

EXPERTS = WHOLE_EXPERTS.instance.workload
SPLIT: dict[str, Any] = {"tp": 2, "splits_sequence": True}


@pytest.mark.parametrize("target", ["megatron", "flagscale"])
@pytest.mark.parametrize(
    ("workload", "demands", "fields"),
    [
        ({"precision": "fp16"}, {"ep": 2}, ["expert_parallel"]),
        ({"precision": "fp16"}, {"ep": 1}, []),
        ({}, {"ep": 2}, []),
        ({}, {"tp": 2}, ["sequence_parallel"]),
        ({}, SPLIT, []),
        ({"expert_biases": True}, SPLIT, ["expert_tensor_parallel"]),
        ({"expert_biases": True}, SPLIT | {"etp": 1}, []),
        ({"expert_biases": True}, {}, []),
    ],
)
def test_experts(
    target: str, workload: dict[str, Any], demands: dict[str, Any], fields: list[str]
) -> None:
    """None in fp16, none in tensor groups of whole sequences, none split that have biases."""
    assert refused(target, EXPERTS.but(**workload), **demands) == fields


@pytest.mark.parametrize(("zero", "fields"), [(0, []), (1, []), (2, ["zero"])])
def test_zero(zero: int, fields: list[str]) -> None:
    """Its distributed optimizer splits states alone, whatever the stages."""
    assert refused("megatron", zero=zero) == refused("megatron", pp=2, zero=zero) == fields
