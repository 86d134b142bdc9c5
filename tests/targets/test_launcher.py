"""What all launch targets have in common: rules, and what a workload asks for."""

from collections.abc import Mapping
from typing import Any

import pytest

from formulations.instance.search import SearchFile
from formulations.instance.targets import LAUNCHERS, TARGETS, Target, launchers, trainers
from formulations.instance.targets.launcher import Demands, Launcher, Rule, chain_of
from tests.export_cases import UNTIED, instance_of

GPT2 = instance_of().workload  #: whose embedding and head are one matrix
PLAIN = instance_of(UNTIED).workload


def refused(target: str, workload: Any = PLAIN, **demands: Any) -> list[str]:
    """Fields that do not go together with the rest."""
    fields: Mapping[str, Any] = {"tp": 1, **demands}
    return [refusal.field for refusal in LAUNCHERS[target].refused(workload, Demands(**fields))]


def test_rules_that_hold_only_where_stages_recompute_unlike() -> None:
    """Left out where all are alike, and what of a search is kept stays within the others."""
    rules = {"recompute": Rule(("none",), "why"), "zero": Rule((0,), "why")}
    launcher = Launcher("x", rules, free_if_alike=("recompute",))
    assert (list(launcher.rules("plan")), list(launcher.rules("stage"))) == (["zero"], [*rules])
    assert launcher.kept(SearchFile(zero=(0, 1))) == {"recompute": ("none",), "zero": (0,)}
    assert [launcher.allows("zero", zero) for zero in (0, 1)] == [True, False]


def test_rule_keeps_what_it_allows() -> None:
    """Of a list what can run; of what cannot the first that can."""
    rule = Rule((1, 2), "why")
    assert rule.kept((2, 3, 1)) == (2, 1)
    assert rule.kept((3,)) == (1,)
    assert (rule.kept(2), rule.kept(3)) == (2, 1)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_rules_are_for_fields_and_keep_a_default(name: Target) -> None:
    """A rule names a field of `search`, and leaves something of its default."""
    written = SearchFile()
    for field, rule in LAUNCHERS[name].search.items():
        value = getattr(written, field)
        values = value if isinstance(value, tuple) else [value]
        assert rule.allowed
        assert value is None or isinstance(value, str) or any(v in rule.allowed for v in values)


def test_any_runs_all_that_another_target_runs() -> None:
    """The widest target has no rules, so every value has a launcher."""
    assert TARGETS["any"].search == {} == TARGETS["any"].workload
    assert launchers("micro_batches", "uneven") == ["any"]
    assert launchers("recompute_per", "stage") == ["flagscale", "any"]
    assert trainers("optimizer_state", "8bit") == ["any"]
    assert TARGETS["megatron"].allows("tensor_parallel", 8)  # free, as it has no rule
    assert refused("any", GPT2, pp=2, zero=3, ep=2, cp=2) == []


@pytest.mark.parametrize(
    ("demands", "fields"),
    [
        ({"zero": 0}, ["zero"]),
        ({"zero": 1}, []),
        ({"zero": 2}, ["zero"]),
        ({"zero": 2, "copied": False}, []),
        ({"zero": 0, "copied": False}, ["zero"]),
    ],
)
def test_states_in_bf16_are_distributed(demands: dict[str, Any], fields: list[str]) -> None:
    """Even where no GPUs have the same; what is on one GPU no ZeRO stage splits."""
    halves = PLAIN.but(optimizer_bytes=8)
    assert halves.optimizer_state == "bf16"
    assert refused("megatron", halves, **demands) == fields


@pytest.mark.parametrize(
    ("pp", "tied", "fields"), [(1, True, []), (2, False, []), (2, True, ["pipeline_parallel"])]
)
def test_tied_matrices_stay_in_one_stage_of_torchtitan(
    pp: int, tied: bool, fields: list[str]
) -> None:
    """And so do heads that predict further tokens."""
    workload = GPT2 if tied else PLAIN
    assert refused("torchtitan", workload, pp=pp, zero=1 if pp > 1 else 2) == fields
    assert refused("megatron", workload, pp=pp) == []
    assert TARGETS["torchtitan"].most_stages(PLAIN.but(mtp_layers=1)) == 1


def test_what_is_trained() -> None:
    """Fields of a workload that a target has rules for, with what it can train."""
    t5 = instance_of("catalogue: t5-3b, optimizer_state: 8bit").workload
    assert chain_of(t5) == "an encoder and a decoder"
    assert chain_of(PLAIN.but(layer_runs=PLAIN.layer_runs[1:])).startswith("a chain that is not")
    refusals = {refusal.field: refusal.instead for refusal in TARGETS["megatron"].untrained(t5)}
    assert refusals == {"optimizer_state": ("fp32", "bf16"), "layers": ("one stack of blocks",)}
    assert list(TARGETS["megatron"].untrained(PLAIN)) == []
