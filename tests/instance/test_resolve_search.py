"""Defaults of `search`, which depend on GPUs, degrees, profile and launch target."""

import pytest

from formulations.instance import Instance
from tests.conftest import ROOT
from tests.instance_texts import parsed

PROFILE = """
profile:
  source: invented
  includes_tensor_parallel_traffic: true
  backward_over_forward: 2.0
  flash_attention: {flag}
  sequence_parallel: {flag}
  times_ms:
    embedding: {{A100-40: {{2: {{1: 0.2}}}}}}
    block: {{A100-40: {{2: {{1: 0.9}}}}}}
    head: {{A100-40: {{2: {{1: 0.4}}}}}}
"""


def small(
    gpu: str = "A100-40", workload: str = "precision: fp16", search: str = "", more: str = ""
) -> Instance:
    """BERT-large on four GPUs."""
    return parsed(f"""
name: small
workload: {{catalogue: bert-large, {workload}}}
cluster: {{groups: [{{name: a, gpu: {gpu}, gpus_per_node: 4, nodes: 1}}]}}
search: {{micro_batch: 1{search}}}
{more}""")


@pytest.mark.parametrize(
    ("tokens", "search", "split"),
    [
        ("512", "", True),
        ("512", ", tensor_parallel: 1", False),
        ("512", ", sequence_parallel: false", False),
        ("511", "", False),
    ],
)
def test_sequence_is_split_where_tensor_groups_divide_it(
    tokens: str, search: str, split: bool
) -> None:
    """By default where a degree is above 1."""
    assert (
        small(workload=f"sequence_length: {tokens}", search=search).search.sequence_parallel
        == split
    )


@pytest.mark.parametrize("flag", [False, True])
def test_profile_says_what_it_was_measured_with(flag: bool) -> None:
    """Times hold for the strategies that they were measured with."""
    more = PROFILE.format(flag="true" if flag else "false")
    instance = small(search=", tensor_parallel: 2", more=more)
    assert instance.workload.flash_attention == instance.search.sequence_parallel == flag


@pytest.mark.parametrize(
    ("search", "zero", "per", "recompute"),
    [
        ("", (0, 1), "plan", ("none", "selective", "full")),
        (", target: flagscale", (0, 1), "stage", ("none", "full")),
        (", target: torchtitan", (0, 1, 2, 3), "plan", ("none", "full")),
        (", target: any", (0, 1, 2, 3), "stage", ("none", "selective", "full")),
        (", target: any, zero: SHARD_GRAD_OP, recompute: full", (2,), "stage", ("full",)),
        (", target: flagscale, recompute_per: plan", (0, 1), "plan", ("none", "selective", "full")),
    ],
)
def test_defaults_are_what_the_target_runs(
    search: str, zero: tuple[int, ...], per: str, recompute: tuple[str, ...]
) -> None:
    """What is not stated is narrowed; on a V100, which has no flash attention, three ways stay."""
    decided = small("V100-16", "precision: fp32", search).search
    assert (decided.zero, decided.recompute_per, decided.recompute) == (zero, per, recompute)


def test_heads_limit_the_exchange_between_them_alone() -> None:
    """4 key and value heads on 8 GPUs per sequence."""
    text = (ROOT / "tests/data/cp_not_heads.yaml").read_text().replace("all_to_all", "ring")
    assert parsed(text).search.context_parallel == (4,)
