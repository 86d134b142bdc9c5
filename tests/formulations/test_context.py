"""Traffic of context parallelism, worked out by hand."""

import pytest

from formulations.costs.context import method_of, traffic_s
from formulations.instance import Layer, Link
from formulations.instance.sizes import LatentAttentionSizes, TransformerSizes
from formulations.instance.transformer import build_workload

LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)


def block(**sizes: object) -> Layer:
    """A block on 4096 tokens, hidden size 1024."""
    given = {"hidden_size": 1024, "layers": 1, "heads": 8, "vocabulary_size": 1000, **sizes}
    workload = build_workload(
        TransformerSizes.model_validate(given),
        name="tiny",
        source="test",
        sequence_length=4096,
        global_batch=1,
        flash_attention=True,
    )
    return workload.layers[1]


def test_ring_moves_keys_and_values_three_times() -> None:
    """Once forward, twice backward: (cp - 1) / cp of 2 heads of 128, split by tp."""
    layer = block(kv_heads=2)
    assert method_of(layer, tp=2, cp=4, kv_heads=2) == "ring"
    forward, backward = traffic_s(layer, tp=2, cp=4, b=3, kv_heads=2, link=LINK)
    one = 3 / 4 * 3 * (2 * 2 * 4096 * 2 * 128) / 2 / 1e9 + 3e-6
    assert forward == pytest.approx(one)
    assert backward == pytest.approx(2 * one)


def test_all_to_all_where_it_sends_less() -> None:
    """Queries, keys, values and sums of 8 heads, 1 / cp of each, once in each pass."""
    layer = block()
    assert method_of(layer, tp=1, cp=4, kv_heads=8) == "all-to-all"
    forward, backward = traffic_s(layer, tp=1, cp=4, b=1, kv_heads=8, link=LINK)
    one = 3 / 4 * 4 * (2 * 4096 * 8 * 128) / 4 / 1e9 + 3e-6
    assert forward == backward == pytest.approx(one)


@pytest.mark.parametrize(("tp", "cp"), [(4, 4), (1, 16), (3, 2)])
def test_heads_that_cannot_be_divided_go_round_a_ring(tp: int, cp: int) -> None:
    """All-to-all gives each GPU whole heads."""
    assert method_of(block(), tp, cp, kv_heads=8) == "ring"


def test_latent_attention_sends_whole_heads() -> None:
    """DeepSeek's keys of 128 + 64 and values of 128 per head, not their rank of 512."""
    latent = LatentAttentionSizes(
        query_rank=512, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128
    )
    layer = block(latent_attention=latent)
    assert layer.key_value_bytes == 2 * 4096 * 8 * (192 + 128)
    assert layer.query_bytes == 2 * 4096 * 8 * (192 + 128)


def test_one_gpu_sends_nothing() -> None:
    """Without context parallelism there is no traffic."""
    assert traffic_s(block(), tp=1, cp=1, b=1, kv_heads=8, link=LINK) == (0.0, 0.0)
