"""Traffic of context parallelism, worked out by hand."""

from pathlib import Path

import pytest

from formulations.costs.context import context_methods, context_s, method_of
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import Degrees
from tests.oracles.agreement import pages_suffice
from tests.small_instances import plain_config

test_pages_suffice = pages_suffice(2, 7, 13, 15)

NVLINK = 450e9  # bytes per second, 3.4 us


def instance(sizes: str = "", search: str = "") -> Instance:
    """4096 tokens, hidden size 1024, 8 heads, on 8 H100."""
    text = f"""
name: tiny
workload:
  sizes: {{hidden_size: 1024, layers: 1, heads: 8, vocabulary_size: 1000{sizes}}}
  sequence_length: 4096
  global_batch: 8
cluster:
  groups:
    - name: h100
      gpu: {{name: fast, peak: {{bf16: 1 PFLOP/s}}, memory: 80 GiB, memory_bandwidth: 3 TB/s,
             compute_capability: 9, attention_maximum: 0.5, attention_half_flops: 1e10,
             link: {{bandwidth: 450 GB/s, latency: 3.4 us}}}}
      gpus_per_node: 8
      nodes: 1
      inter_node: InfiniBand 8x NDR
search: {{context_parallel: [1, 2, 4]{search}}}
"""
    return parse_instance(text, "tiny.yaml", Path())


def traffic_s(one: Instance, tp: int, cp: int, b: int) -> tuple[float, float]:
    own, layer = Degrees(tp=tp, cp=cp), one.workload.layers[1]
    return context_s(one, layer, one.cluster.groups[0], own, b)


def test_ring_moves_keys_and_values_three_times() -> None:
    """Once forward, twice backward: (cp - 1) / cp of 2 heads of 128, split by tp."""
    found = traffic_s(instance(", kv_heads: 2"), tp=2, cp=4, b=3)
    one = 3 / 4 * 3 * (2 * 2 * 4096 * 2 * 128) / 2 / NVLINK + 3 * 3.4e-6
    # of 8 heads, 4 results of 10 bytes per element; 3 more kernels of 1e10 FLOPs to half speed
    results = 3 * 4096 * 1024 / (2 * 4)
    more = 4 * 10 * results / 3e12 + 3 * 1e10 / (1e15 * 0.5)
    assert found == pytest.approx((one + more, 2 * one + more))


def test_all_to_all_where_it_sends_less() -> None:
    """Queries, keys, values and sums of 8 heads, 1 / cp of each, once in each pass.

    The sums go back when the others are there: each of the two exchanges starts with 3 peers.
    """
    one = instance()
    assert method_of(one.workload.layers[1], tp=1, cp=4, kv_heads=8) == "all_to_all"
    shared = plain_config((1,), degrees=(Degrees(tp=1, cp=4),))
    assert context_methods(one, shared) == ["all_to_all"]
    seconds = 3 / 4 * 4 * (2 * 4096 * 8 * 128) / 4 / NVLINK + 2 * 3 * 3.4e-6
    assert traffic_s(one, tp=1, cp=4, b=1) == pytest.approx((seconds, seconds))


def test_bug_weighted_sums_wait_for_the_attention() -> None:
    """An all-to-all brings queries, keys and values, a second one the sums: two starts a pass."""
    one = instance(search=", context_method: all_to_all")
    group = one.cluster.groups[0]
    group = group.but(intra_node={"bandwidth_bytes_per_s": 1e18})
    found = context_s(one, one.workload.layers[1], group, Degrees(tp=1, cp=4), 1)
    assert found == pytest.approx((2 * 3 * 3.4e-6,) * 2)
