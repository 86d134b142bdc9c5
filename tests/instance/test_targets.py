"""What each framework launches: fields that exclude each other, each just inside and outside."""

from typing import Any

import pytest

from formulations.instance.launcher import Demands
from formulations.instance.search import SearchFile
from formulations.instance.targets import LAUNCHERS, TARGETS, Target, launchers, mixed_gradients
from tests.export_cases import UNTIED, WHOLE_EXPERTS, instance_of

GPT2 = instance_of().workload  #: whose embedding and head are one matrix
PLAIN = instance_of(UNTIED).workload
EXPERTS = WHOLE_EXPERTS.instance.workload
HALF, BIASED = EXPERTS.but(precision="fp16"), EXPERTS.but(expert_biases=True)


def refused(target: str, demands: dict[str, Any], workload: Any = PLAIN) -> str:
    """Fields that do not go together with the rest."""
    fields = Demands(**{"tp": 1, **demands})
    return ", ".join(refusal.field for refusal in LAUNCHERS[target].refused(workload, fields))


@pytest.mark.parametrize(
    ("target", "demands", "field"),
    [
        ("any", {"pp": 2, "zero": 3, "ep": 2, "cp": 2}, ""),
        # its distributed optimizer splits states alone, whatever the stages
        ("megatron", {"zero": 1}, ""),
        ("megatron", {"zero": 2}, "zero"),
        ("megatron", {"pp": 2, "zero": 1}, ""),
        ("megatron", {"pp": 2, "zero": 2}, "zero"),
        # FSDP2 reduces with every micro-batch of one stage
        ("torchtitan", {"zero": 1}, "zero"),
        ("torchtitan", {"zero": 2}, ""),
        ("torchtitan", {"zero": 3}, ""),
        ("torchtitan", {"zero": 0, "copied": False}, ""),
        ("torchtitan", {"pp": 2, "zero": 0}, ""),
        ("torchtitan", {"pp": 2, "zero": 1}, ""),
        ("torchtitan", {"pp": 2, "zero": 2}, "zero"),
        # its ranks share experts and sequences
        ("torchtitan", {"tp": 2, "ep": 2, "zero": 2}, "expert_tensor_parallel"),
        ("torchtitan", {"tp": 2, "ep": 2, "etp": 1, "zero": 2}, ""),
        ("torchtitan", {"tp": 2, "ep": 1, "etp": 1, "zero": 2}, "expert_tensor_parallel"),
        ("torchtitan", {"ep": 2, "pp": 2}, "expert_parallel"),
        ("torchtitan", {"ep": 2, "pp": 2, "zero": 1}, ""),
        ("torchtitan", {"ep": 2, "pp": 2, "copied": False}, ""),
        ("torchtitan", {"cp": 2, "pp": 2}, "context_parallel"),
        ("torchtitan", {"cp": 2, "pp": 2, "zero": 1}, ""),
        # pipelines split no layer; gradients of another format go with ZeRO
        ("deepspeed", {"tp": 2, "pp": 2, "zero": 1}, "tensor_parallel"),
        ("deepspeed", {"tp": 2, "zero": 1}, ""),
        ("deepspeed", {"tp": 2, "zero": 1, "splits_sequence": True}, "sequence_parallel"),
        ("deepspeed", {"tp": 1, "zero": 1, "splits_sequence": True}, ""),
        ("deepspeed", {"tp": 2, "zero": 2}, ""),
        ("deepspeed", {"tp": 2, "zero": 3}, "zero"),
        ("deepspeed", {"tp": 1, "zero": 3}, ""),
        ("deepspeed", {"zero": 0}, "zero"),
        ("deepspeed", {"zero": 0, "copied": False}, ""),
        # it has no pipelines, and FSDP2 splits gradients too
        ("accelerate", {"pp": 2, "zero": 0}, "pipeline_parallel"),
        ("accelerate", {"zero": 0}, ""),
        ("accelerate", {"zero": 1}, "zero"),
        ("accelerate", {"zero": 1, "copied": False}, ""),
        ("accelerate", {"zero": 2}, ""),
        ("accelerate", {"tp": 2, "zero": 0}, "zero"),
        ("accelerate", {"tp": 2, "zero": 0, "copied": False}, ""),
        ("accelerate", {"tp": 2, "zero": 2}, ""),
        ("accelerate", {"tp": 2, "zero": 2, "splits_sequence": True}, "sequence_parallel"),
        ("accelerate", {"tp": 1, "zero": 2, "splits_sequence": True}, ""),
    ],
)
def test_fields_that_go_together(target: str, demands: dict[str, Any], field: str) -> None:
    """Of a model without experts, with matrices of its own for embedding and head."""
    assert refused(target, demands) == field


@pytest.mark.parametrize(
    ("workload", "demands", "field"),
    [
        (HALF, {"ep": 2}, "expert_parallel"),
        (HALF, {"ep": 1}, ""),
        (EXPERTS, {"ep": 2}, ""),
        (EXPERTS, {"tp": 2}, "sequence_parallel"),
        (EXPERTS, {"tp": 2, "splits_sequence": True}, ""),
        (BIASED, {"tp": 2, "splits_sequence": True}, "expert_tensor_parallel"),
        (BIASED, {"tp": 2, "splits_sequence": True, "etp": 1}, ""),
        (BIASED, {}, ""),
    ],
)
def test_experts_of_megatron(workload: Any, demands: dict[str, Any], field: str) -> None:
    """None in fp16, none in tensor groups of whole sequences, none split that have biases."""
    assert refused("megatron", demands, workload) == field
    assert refused("flagscale", demands, workload) == field


def test_what_a_workload_asks_for() -> None:
    """Tied matrices stay in one stage of torchtitan; gradients like weights need no ZeRO."""
    assert refused("torchtitan", {"pp": 1, "zero": 2}, GPT2) == ""
    assert refused("torchtitan", {"pp": 2, "zero": 1}, GPT2) == "pipeline_parallel"
    assert TARGETS["torchtitan"].most_stages(PLAIN.but(mtp_layers=1)) == 1
    assert refused("megatron", {"pp": 2}, GPT2) == ""
    assert mixed_gradients(PLAIN)
    for alike in (PLAIN.but(precision="fp32"), PLAIN.but(gradient_bytes=2)):
        assert refused("deepspeed", {}, alike) == ""


@pytest.mark.parametrize("name", LAUNCHERS)
def test_rules_are_for_fields_and_keep_a_default(name: Target) -> None:
    """A rule names a field of `search`, and leaves something of its default."""
    for field, rule in LAUNCHERS[name].search.items():
        value = getattr(SearchFile(), field)
        values = value if isinstance(value, tuple) else [value]
        assert value is None or isinstance(value, str) or any(v in rule.allowed for v in values)


def test_any_runs_all_that_another_target_runs() -> None:
    """The widest target has no rules, so every value has a launcher."""
    assert TARGETS["any"].search == {} == TARGETS["any"].workload
    assert launchers("micro_batches", "uneven") == launchers("optimizer_state", "8bit") == ["any"]
    assert launchers("recompute_per", "stage") == ["flagscale", "any"]
