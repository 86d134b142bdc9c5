"""Launch targets: which words of `search` each can run, and what is left of the defaults."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.search import SearchFile
from formulations.instance.targets import TARGETS, Target, launchers

#: Decisions that other parts of the schema will bring; their rules stand already.
COMING = {"context_parallel"}


def parsed(search: str, gpu: str = "A100-40") -> Instance:
    """BERT-large on four GPUs."""
    text = f"""
name: small
workload: {{catalogue: bert-large, precision: fp32}}
cluster: {{groups: [{{name: a, gpu: {gpu}, gpus_per_node: 4, nodes: 1}}]}}
search: {{micro_batch: 1{search}}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize("target", TARGETS)
def test_rules_are_for_fields_and_keep_a_default(target: Target) -> None:
    """A rule names a field of `search`, and leaves something of its default."""
    written = SearchFile()
    for field, rule in TARGETS[target].search.items():
        if field in COMING and field not in SearchFile.model_fields:
            continue
        value = getattr(written, field)
        values = value if isinstance(value, tuple) else [value]
        assert rule.allowed
        assert value is None or isinstance(value, str) or any(v in rule.allowed for v in values)


@pytest.mark.parametrize(
    ("search", "zero", "per", "recompute"),
    [
        ("", (0, 1), "plan", ("none", "selective", "full")),
        (", target: flagscale", (0, 1), "stage", ("none", "full")),
        (", target: torchtitan", (0, 1, 2, 3), "plan", ("none", "full")),
        (", target: any", (0, 1, 2, 3), "stage", ("none", "selective", "full")),
        (", target: any, zero: 1, recompute: full", (1,), "stage", ("full",)),
        (
            ", target: flagscale, recompute_per: plan",
            (0, 1),
            "plan",
            ("none", "selective", "full"),
        ),
    ],
)
def test_defaults_are_what_the_target_runs(
    search: str, zero: tuple[int, ...], per: str, recompute: tuple[str, ...]
) -> None:
    """What is not stated is narrowed; on a V100, which has no flash attention, three ways stay."""
    found = parsed(search, gpu="V100-16").search
    assert (found.zero, found.recompute_per, found.recompute) == (zero, per, recompute)


def test_any_runs_all_that_another_target_runs() -> None:
    """The widest target has no rules, so every value has a launcher."""
    assert TARGETS["any"].search == {}
    assert launchers("micro_batches", "uneven") == ["any"]
    assert launchers("recompute_per", "stage") == ["flagscale", "any"]
    assert TARGETS["megatron"].allows("tensor_parallel", 8)  # free, as it has no rule


def test_zero_of_torchtitan_depends_on_the_stages() -> None:
    """FSDP2 reduces with every micro-batch where there is one stage, and once where several."""
    assert TARGETS["torchtitan"].zero_stages(1) == (2, 3)
    assert TARGETS["torchtitan"].zero_stages(2) == (0, 1)
    assert TARGETS["megatron"].zero_stages(1) == TARGETS["megatron"].zero_stages(2) == (0, 1)
