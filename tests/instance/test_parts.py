"""Promises of formulations.instance.parts: what a block costs, by hand and as published."""

import pytest

from formulations.instance.parts import layer_of, lookup, projection, scores
from formulations.instance.sizes import MoeSizes, TransformerSizes, WindowSizes
from formulations.units import GIB
from tests.architectures import DEEPSEEK, GPT2, LLAMA3, MIXTRAL, T5_SMALL, build, gpt, layer
from tests.oracles.agreement import check_layers

EXPERTS = MoeSizes(experts=8, experts_per_token=2, ffn_size=14336, biases=True)


@pytest.mark.parametrize("seed", range(24))
def test_plain_blocks_are_those_of_the_pages(seed: int) -> None:
    """FLOPs, parameters and all-reduces of plain attention, networks and experts."""
    check_layers(seed)


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
    assert (dense.forward_all_reduces, dense.backward_all_reduces) == (2, 2)


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


def test_a_window_shortens_scores_under_flash_attention_only() -> None:
    """Queries meet the window's keys; without flash attention all scores are worked out."""
    # s = 16: 32 * 218103808 for the matrices; 4 * 16 * 4096 per key
    short, matrices = LLAMA3.but(window=WindowSizes(tokens=6)), 32 * 218_103_808
    assert layer(build(short, 16, flash=True), "block").forward_flops == matrices + 262_144 * 6
    assert layer(build(short, 16), "block").forward_flops == matrices + 262_144 * 16


@pytest.mark.parametrize(
    ("sizes", "change", "more"),
    [
        (LLAMA3, {"qk_norms_of_all_heads": True}, (32 + 8) * 128),
        (LLAMA3, {"attention_sinks": True}, 32),
        # the router has a bias per expert, an expert one per inner column and one per output
        (MIXTRAL, {"moe": EXPERTS}, 8 * (1 + 2 * 14336 + 4096)),
    ],
)
def test_small_parameters_of_a_block(
    sizes: TransformerSizes, change: dict[str, object], more: int
) -> None:
    """Norms of all heads; a sink per head; biases of experts."""
    block = layer(build(sizes.model_copy(update=change), 8), "block")
    assert block.parameters == layer(build(sizes, 8), "block").parameters + more


def test_kernels_that_are_bound_by_memory() -> None:
    """Two norms, softmax and dropout, two adds, the activation; rotary positions of q and k."""
    plain, flash = layer(build(GPT2, 8), "block"), layer(build(GPT2, 8, flash=True), "block")
    assert (plain.memory_kernels, plain.core_memory_kernels) == (7, 2)
    assert (flash.memory_kernels, plain.with_flash().memory_kernels) == (5, 5)
    assert layer(build(LLAMA3, 8, flash=True), "block").memory_kernels == 5 + 2
    # a mask of s^2 per head, which no precision widens
    assert scores(2, 4, 8, 8, flash=False, dropout=True)["fixed_sharded_bytes"] == 2 * 64
    # of 4 s^2 h of scores, fused attention leaves out the half that the mask hides
    assert plain.attention_flops == flash.attention_flops == plain.unweighted_flops // 2


def test_lookup_and_projection_of_the_vocabulary() -> None:
    """2 s h V; kept are the input, 2 s h, and logits of 4 s V, which no precision widens."""
    part, ids = projection(3, 5, 7), lookup(15, dropout=True, streams=2)
    assert (part["forward_flops"], part["kernels"], part["memory_kernels"]) == (210, 8, 7)
    wide = layer_of(part, "head", factor=2, input_bytes=1, vocabulary=(7, 5), tied_copy=True)
    assert (wide.replicated_activation_bytes, wide.sharded_activation_bytes) == (60, 84)
    assert (wide.is_block, wide.parameters, wide.vocabulary_rows) == (False, 0, 7)
    assert (ids["kernels"], ids["forward_all_reduces"]) == (4, 2)
    assert ids["replicated_activation_bytes"] == ids["fixed_replicated_bytes"] == 15
