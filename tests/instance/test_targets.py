"""What each framework launches: fields that exclude each other, each just inside and outside."""

from ast import literal_eval
from typing import Any

import pytest

from formulations.instance.launcher import Demands
from formulations.instance.search import SearchFile
from formulations.instance.targets import LAUNCHERS, TARGETS, Target, launchers, mixed_gradients
from tests.conftest import ROOT
from tests.export_cases import UNTIED, WHOLE_EXPERTS, instance_of

GPT2 = instance_of().workload  #: whose embedding and head are one matrix
PLAIN = instance_of(UNTIED).workload
EXPERTS = WHOLE_EXPERTS.instance.workload
MODELS = {
    "plain": PLAIN,
    "experts": EXPERTS,
    "experts in fp16": EXPERTS.but(precision="fp16"),
    "experts with biases": EXPERTS.but(expert_biases=True),
}
ROWS = (ROOT / "tests" / "data" / "targets.txt").read_text(encoding="utf-8").splitlines()


def refused(target: str, demands: dict[str, Any], workload: Any = PLAIN) -> str:
    """Fields that do not go together with the rest."""
    fields = Demands(**{"tp": 1, **demands})
    return ", ".join(refusal.field for refusal in LAUNCHERS[target].refused(workload, fields))


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith("#")])
def test_fields_that_go_together(row: str) -> None:
    """Each just inside and just outside what a target launches."""
    target, model, text, field = (cell.strip() for cell in row.split("|"))
    words = iter(text.split())
    demands = {name: literal_eval(next(words)) for name in words}
    assert refused(target, demands, MODELS[model]) == field


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
