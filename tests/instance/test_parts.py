"""Promises of formulations.instance.parts: what a block costs, by hand and as published."""

import pytest

from formulations.instance.parts import layer_of, lookup, projection
from formulations.instance.sizes import TransformerSizes
from formulations.units import GIB
from tests.architectures import (
    DEEPSEEK,
    GPT2,
    LLAMA3,
    MIXTRAL,
    T5_SMALL,
    build,
    gpt,
    kinds_of_workloads,
    layer,
)
from tests.oracles.agreement import check_layers
from tests.recorded import as_recorded, digest


@pytest.mark.parametrize("seed", range(24))
def test_plain_blocks_are_those_of_the_pages(seed: int) -> None:
    """FLOPs, parameters and all-reduces of plain attention, networks and experts."""
    check_layers(seed)


def test_layers_are_the_recorded_ones() -> None:
    """Every field of every layer, of models of every kind."""
    kinds = kinds_of_workloads()
    as_recorded("layers", {name: digest(work.layer_runs) for name, work in kinds.items()})
    wide = layer_of(projection(3, 5, 7), "head", factor=2, input_bytes=1, vocabulary=(7, 5))
    assert (wide.replicated_activation_bytes, wide.sharded_activation_bytes) == (60, 84)
    assert lookup(15, dropout=True, streams=2)["kernels"] == 4


def test_latent_attention() -> None:
    """Low-rank products; latents are kept, and held, whole; value heads may be narrower."""
    # s = 1, attention: 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256
    # + 128 * 128 * 7168 = 187105280; scores 2 * 128 * (192 + 128) = 81920
    # dense 3 * 7168 * 18432 = 396361728; routed 7168 * 256 + 9 * 3 * 7168 * 2048 = 398196736
    workload = build(DEEPSEEK, 1)
    dense, block = layer(workload, "dense_block"), layer(workload, "block")
    assert dense.forward_flops == 2 * (187105280 + 396361728) + 81920
    assert block.forward_flops == 2 * (187105280 + 398196736) + 81920
    assert block.expert_flops == 2 * 8 * 3 * 7168 * 2048
    # norms 2 * 7168, down 7168 * (1536 + 576), their norms 1536 + 512, router 7168 * 256
    assert dense.replicated_parameters == 14_336 + 15_138_816 + 2_048
    assert block.replicated_parameters == dense.replicated_parameters + 1_835_008


@pytest.mark.parametrize(
    ("sizes", "s", "flash", "kind", "replicated", "sharded"),
    [
        # Korthikanti et al. 2023: s h (10 + 24 / t + 5 a s / (h t)) at a = 12 heads
        (GPT2, 1024, False, "block", 10 * 786_432, 24 * 786_432 + 5 * 12 * 1_048_576),
        # inputs of norm and projection; logits in fp32
        (GPT2, 1024, False, "head", 4 * 1024 * 768, 4 * 1024 * 50257),
        # s = 10: 8 s h; s (2 * 6144 + 2 * 4096 + 6 * 14336), queries and keys once more behind
        # their rotary positions 2 * 5120 s, and 2 * 32 s^2 of scores or 4 * 32 s
        (LLAMA3, 10, False, "block", 327_680, 1_064_960 + 102_400 + 6_400),
        (LLAMA3, 10, True, "block", 327_680, 1_064_960 + 102_400 + 1_280),
        # s = 1: 8 * 4096 + 4 * 8 + 2 * (2 + 2) * 4096; 12288 + 10240 + 8192 + 64 + 2 * 6 * 14336
        (MIXTRAL, 1, False, "block", 65_568, 202_816),
        # s = 1: 8 * 7168 + 4 * (1536 + 512); queries 2 * 128 * 192, keys and values 2 * 128 * 320,
        # context 2 * 128 * 128, softmax 2 * 128, network 6 * 18432
        (DEEPSEEK, 1, False, "dense_block", 65_536, 49_152 + 81_920 + 32_768 + 256 + 110_592),
        # s = 2, h = 512: 10 s h; 2 * (4 * 1024 + 8192) + 5 * 8 * 4. Cross-attention: 7 s h for
        # norm, query input, encoder output, mask; + 2 * 4096 + 5 * 8 * 4
        (T5_SMALL, 2, False, "encoder", 10_240, 24_736),
        (T5_SMALL, 2, False, "decoder", 17_408, 33_088),
    ],
)
def test_activations(
    sizes: TransformerSizes, s: int, flash: bool, kind: str, replicated: int, sharded: int
) -> None:
    """Kept for the backward pass, whole and split."""
    stated = layer(build(sizes, s, flash), kind)
    assert stated.replicated_activation_bytes == replicated
    assert stated.sharded_activation_bytes == sharded


@pytest.mark.parametrize(
    ("hidden", "layers", "heads", "copies", "published_gib"),
    [
        # 22B: 48 layers on one stage, micro-batches of 4
        (6144, 48, 64, 48 * 4, 59.25),
        # 175B: 12 layers on the first of 8 stages, 8 in flight, interleaving factor 1 + 7/24
        (12288, 96, 96, 96 * (1 + 7 / 24), 66.84375),
    ],
)
def test_activations_of_korthikanti_figure_1(
    hidden: int, layers: int, heads: int, copies: float, published_gib: float
) -> None:
    """Activations at tp 8 equal Korthikanti et al. 2023, figure 1 (baseline bars)."""
    block = layer(build(gpt(hidden, layers, heads, 51200, 2048), 2048), "block")
    assert block.activation_bytes(tp=8) * copies / GIB == pytest.approx(published_gib, abs=0.01)
