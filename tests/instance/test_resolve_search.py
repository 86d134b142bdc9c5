"""Defaults of `search`, which depend on GPUs, degrees, profile and launch target."""

import pytest

from formulations.instance import Instance
from tests.conftest import ROOT
from tests.instance.resolved import broken, drawn, section
from tests.instance_texts import parsed
from tests.recorded import as_recorded, digest

test_lines = broken(
    *("cp_", "ep_", "etp_", "tp_", "target", "batch_not", "degrees", "zero", "per_stage"),
    *("interleaved", "chunk", "recompute", "sequence_parallel", "overlap", "profile_with"),
)

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


def test_spaces_are_the_recorded_ones() -> None:
    """Of shipped files and drawn texts; with their lines where they are refused."""
    lines = {name: digest(made) for name, made in drawn().items() if isinstance(made, str)}
    as_recorded("resolve_search", section("search") | lines)


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


def test_sequence_is_split_where_tensor_groups_divide_it() -> None:
    """By default where a degree is above 1, and as the profile says."""
    degrees = ", tensor_parallel: [1, 2]"
    searches = ("512", degrees), ("511", degrees), ("512", ", tensor_parallel: 1")
    split = [small(workload=f"sequence_length: {s}", search=more).search for s, more in searches]
    assert [search.sequence_parallel for search in split] == [True, False, False]
    assert [search.split_tokens for search in split] == [512, 0, 0]
    for flag in ("false", "true"):
        instance = small(search=", tensor_parallel: 2", more=PROFILE.format(flag=flag))
        stated = instance.workload.flash_attention, instance.search.sequence_parallel
        assert stated == (flag == "true",) * 2


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
