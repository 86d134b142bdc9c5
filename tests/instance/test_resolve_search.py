"""Defaults of memory strategies, which depend on GPUs, degrees and profile."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance

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


def parsed(gpu: str = "A100-40", workload: str = "", search: str = "", more: str = "") -> Instance:
    """BERT-large on four GPUs."""
    text = f"""
name: small
workload: {{catalogue: bert-large, precision: fp16{workload}}}
cluster: {{groups: [{{name: a, gpu: {gpu}, gpus_per_node: 4, nodes: 1}}]}}
search: {{micro_batch: 1{search}}}
{more}"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize(
    ("gpu", "flash"), [("A100-40", True), ("H100", True), ("V100-16", False), ("T4", False)]
)
def test_flash_attention_where_the_gpu_has_it(gpu: str, flash: bool) -> None:
    """By default Ampere and later have it, and then selective recomputation is no choice."""
    instance = parsed(gpu)
    assert instance.workload.flash_attention == flash
    recompute = ("none", "full") if flash else ("none", "selective", "full")
    assert instance.search.recompute == recompute
    assert any(layer.core_bytes for layer in instance.workload.layers) == (not flash)


def test_flash_attention_may_be_switched_off() -> None:
    """Then scores are kept, and layers know what they would be without."""
    off, on = parsed(workload=", flash_attention: false").workload, parsed().workload
    assert not off.flash_attention
    assert off.with_flash() == on


@pytest.mark.parametrize(
    ("search", "split"),
    [("", True), (", tensor_parallel: 1", False), (", sequence_parallel: false", False)],
)
def test_sequence_is_split_where_there_are_tensor_groups(search: str, split: bool) -> None:
    """By default where a degree is above 1."""
    assert parsed(search=search).search.sequence_parallel == split


def test_sequence_of_odd_length_is_not_split_by_default() -> None:
    """Where a degree does not divide it."""
    assert not parsed(workload=", sequence_length: 511").search.sequence_parallel


@pytest.mark.parametrize("flag", [False, True])
def test_profile_says_what_it_was_measured_with(flag: bool) -> None:
    """Times hold for the strategies that they were measured with."""
    more = PROFILE.format(flag="true" if flag else "false")
    instance = parsed(search=", tensor_parallel: 2", more=more)
    assert instance.workload.flash_attention == flag
    assert instance.search.sequence_parallel == flag


def test_names_of_fsdp() -> None:
    """Torchtitan's users know ZeRO 2 and 3 by other names."""
    assert parsed(search=", zero: [NO_SHARD, FULL_SHARD], target: any").search.zero == (0, 3)
    assert parsed(search=", zero: SHARD_GRAD_OP, target: any").search.zero == (2,)
