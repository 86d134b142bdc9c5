"""Rules of launch targets; tests/data/targets.txt: fields that exclude each other."""

from ast import literal_eval
from typing import Any

import pytest

from formulations.instance.search import SearchFile
from formulations.instance.targets import (
    LAUNCHERS,
    TARGETS,
    Demands,
    Launcher,
    Rule,
    Target,
    chain_of,
    launchers,
    mixed_gradients,
)
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
    (stages,) = LAUNCHERS["torchtitan"].refused(GPT2, Demands(tp=1, pp=2, zero=1))
    assert stages.reason == "which keeps tied embeddings in one stage"
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


def test_rules_keep_what_they_allow() -> None:
    """Of a list what can run, else the first that can; some hold only where stages are unlike."""
    rules = {"recompute": Rule(("none",), "why"), "zero": Rule((1, 2), "why")}
    launcher = Launcher("x", rules, free_if_alike=("recompute",))
    assert [rules["zero"].kept(value) for value in ((2, 3, 1), (3,), 2, 3)] == [(2, 1), (1,), 2, 1]
    assert (list(launcher.rules("plan")), list(launcher.rules("stage"))) == (["zero"], [*rules])
    assert launcher.kept(SearchFile(zero=(0, 1))) == {"recompute": ("none",), "zero": (1,)}
    assert [launcher.allows("zero", zero) for zero in (0, 1)] == [False, True]
    assert launcher.allows("tensor_parallel", 8)  # free, as it has no rule


def test_states_are_split_among_gpus_that_have_the_same() -> None:
    """Those that are distributed are split with ZeRO alone, whatever GPUs have."""
    launcher = Launcher("x", zero_stages=((0, 1), (0, 2)), distributed=("bf16",))
    halves = PLAIN.but(optimizer_bytes=8)
    for zero, pp, copied, fields in (
        (0, 1, True, []),
        (1, 1, True, []),
        (1, 2, True, ["zero"]),
        (1, 2, False, []),
    ):
        demands = Demands(tp=1, pp=pp, zero=zero, copied=copied)
        assert [refusal.field for refusal in launcher.refused(PLAIN, demands)] == fields
        assert demands.sharded == (zero > 0 or not copied)
        distributed = list(launcher.refused(halves, demands))
        assert bool(distributed) == (bool(fields) or not zero)


def test_what_is_trained() -> None:
    """Fields of a workload that a target has rules for, with what it can train."""
    t5 = instance_of("catalogue: t5-3b, optimizer_state: 8bit").workload
    assert chain_of(t5) == "an encoder and a decoder"
    assert chain_of(PLAIN.but(layer_runs=PLAIN.layer_runs[1:])).startswith("a chain that is not")
    stack = Rule(("one stack of blocks",), "why")
    launcher = Launcher("x", workload={"layers": stack, "optimizer_state": Rule(("fp32",), "why")})
    refusals = {refusal.field: refusal.instead for refusal in launcher.untrained(t5)}
    assert refusals == {"optimizer_state": ("fp32",), "layers": ("one stack of blocks",)}
    assert list(launcher.untrained(PLAIN)) == []
