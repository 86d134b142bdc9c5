"""Promises of formulations.instance.parts: what a block costs, by hand and as published."""

import pytest

from formulations.instance.parts import layer_of, lookup, projection
from formulations.instance.sizes import MoeSizes, TransformerSizes, WindowSizes
from formulations.units import GIB
from tests.architectures import DEEPSEEK, GPT2, LLAMA3, MIXTRAL, T5_SMALL, build, gpt, layer


def test_gpt_block_forward_flops() -> None:
    """A GPT block costs 24 s h^2 + 4 s^2 h (PROBLEM section 4)."""
    # s = 1024, h = 768: 24 * 1024 * 589824 + 4 * 1048576 * 768 = 14495514624 + 3221225472
    block = layer(build(GPT2, 1024), "block")
    assert block.forward_flops == 17_716_740_096


def test_grouped_heads_and_gate_reduce_and_add_flops() -> None:
    """Grouped heads and a gated network are counted by their matrices."""
    # per token: q, k, v 4096 * (4096 + 2 * 1024), out 4096^2, network 3 * 4096 * 14336 =
    # 25165824 + 16777216 + 176160768 = 218103808; s = 10: 20 * that + 4 * 100 * 4096
    block = layer(build(LLAMA3, 10), "block")
    assert block.forward_flops == 4_362_076_160 + 1_638_400


def test_mixture_of_experts_flops_count_active_experts() -> None:
    """Only the top-k experts and the router count."""
    # per token: attention 41943040, router 4096 * 8 = 32768, 2 * 3 * 4096 * 14336 = 352321536;
    # s = 16: 32 * 394297344 + 4 * 256 * 4096
    block = layer(build(MIXTRAL, 16), "block")
    assert block.forward_flops == 12_617_515_008 + 4_194_304


def test_latent_attention_flops() -> None:
    """Latent attention counts its low-rank products; value heads may be narrower."""
    # s = 1, attention: 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256
    # + 128 * 128 * 7168 = 187105280; scores 2 * 128 * (192 + 128) = 81920
    # dense 3 * 7168 * 18432 = 396361728; routed 7168 * 256 + 9 * 3 * 7168 * 2048 = 398196736
    workload = build(DEEPSEEK, 1)
    assert layer(workload, "dense_block").forward_flops == 2 * (187105280 + 396361728) + 81920
    assert layer(workload, "block").forward_flops == 2 * (187105280 + 398196736) + 81920


def test_a_window_shortens_scores_under_flash_attention_only() -> None:
    """Queries meet the window's keys; without flash attention all scores are worked out."""
    # s = 16: 32 * 218103808 for the matrices; 4 * 16 * 4096 per key
    short = LLAMA3.but(window=WindowSizes(tokens=6))
    matrices = 32 * 218_103_808
    assert layer(build(short, 16, flash=True), "block").forward_flops == matrices + 262_144 * 6
    assert layer(build(short, 16), "block").forward_flops == matrices + 262_144 * 16


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"branch_norms": True}, 2 * 4096),
        ({"qk_norms": True}, 2 * 128),
        ({"qk_norms_of_all_heads": True}, (32 + 8) * 128),
        ({"attention_sinks": True}, 32),
    ],
)
def test_small_parameters_of_a_block(change: dict[str, object], more: int) -> None:
    """Two more norms of h; norms of one or of all heads; a sink per head."""
    block = layer(build(LLAMA3.model_copy(update=change), 8), "block")
    assert block.parameters == layer(build(LLAMA3, 8), "block").parameters + more


def test_biases_of_experts() -> None:
    """A router has a bias per expert, an expert one per inner column and one per output."""
    # 8 * (1 + 2 * 14336 + 4096)
    moe = MoeSizes(experts=8, experts_per_token=2, ffn_size=14336, biases=True)
    biased = layer(build(MIXTRAL.but(moe=moe), 8), "block")
    assert biased.parameters == layer(build(MIXTRAL, 8), "block").parameters + 262_152


@pytest.mark.parametrize(("tp", "kept_bytes"), [(1, 26738688 + 62914560), (4, 12582912 + 15728640)])
def test_gpt_block_activations_of_korthikanti(tp: int, kept_bytes: int) -> None:
    """At tp t a GPT block keeps s h (10 + 24/t + 5 a s / (h t)) bytes per GPU."""
    # s = 1024, h = 768, a = 12: 34 * 786432 + 5 * 12 * 1048576; 16 * 786432 + 62914560 / 4
    assert layer(build(GPT2, 1024), "block").activation_bytes(tp=tp) == kept_bytes


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


def test_activations_without_dropout_with_grouped_heads() -> None:
    """Without dropout no masks are kept; a gated network keeps three inner tensors."""
    # s = 10: replicated 8 s h; sharded s * (2 * 6144 + 2 * 4096 + 6 * 14336) + 2 * 32 * s^2, and
    # queries and keys once more behind their rotary positions, 2 * 5120 s
    block = layer(build(LLAMA3, 10), "block")
    assert block.replicated_activation_bytes == 327_680
    assert block.sharded_activation_bytes == 1_064_960 + 6_400 + 102_400


def test_flash_attention_keeps_one_number_per_row() -> None:
    """Flash attention keeps 4 a s bytes in place of the scores."""
    block = layer(build(LLAMA3, 10, flash=True), "block")
    assert block.sharded_activation_bytes == 1_064_960 + 102_400 + 4 * 32 * 10


def test_kernels_that_are_bound_by_memory() -> None:
    """Two norms, softmax and dropout, two adds, the activation; rotary positions of q and k."""
    plain, flash = layer(build(GPT2, 8), "block"), layer(build(GPT2, 8, flash=True), "block")
    assert (plain.memory_kernels, plain.core_memory_kernels) == (7, 2)
    assert (flash.memory_kernels, plain.with_flash().memory_kernels) == (5, 5)
    assert layer(build(LLAMA3, 8, flash=True), "block").memory_kernels == 5 + 2


def test_mixture_of_experts_activations() -> None:
    """Top-k copies of tokens and the router's scores are kept by every rank."""
    # s = 1: 8 * 4096 + 4 * 8 + 2 * (2 + 2) * 4096; 12288 + 10240 + 8192 + 2 * 32 + 2 * 6 * 14336
    block = layer(build(MIXTRAL, 1), "block")
    assert block.replicated_activation_bytes == 32_768 + 32 + 32_768
    assert block.sharded_activation_bytes == 12_288 + 10_240 + 8_192 + 64 + 172_032


def test_latent_attention_activations() -> None:
    """The latents are kept by every rank, before and after their norms."""
    # s = 1: 8 * 7168 + 4 * (1536 + 512); queries 2 * 128 * 192, keys and values 2 * 128 * 320,
    # context 2 * 128 * 128, softmax 2 * 128, network 6 * 18432
    block = layer(build(DEEPSEEK, 1), "dense_block")
    assert block.replicated_activation_bytes == 57_344 + 8_192
    assert block.sharded_activation_bytes == 49_152 + 81_920 + 32_768 + 256 + 110_592


def test_decoder_activations() -> None:
    """Cross-attention adds 7 s h replicated bytes: norm, query input, encoder output, mask."""
    # s = 2, h = 512: encoder 10 s h; 2 * (4 * 1024 + 8192) + 5 * 8 * 4. decoder + 7 s h;
    # + 2 * 4096 + 5 * 8 * 4
    workload = build(T5_SMALL, 2)
    encoder, decoder = layer(workload, "encoder"), layer(workload, "decoder")
    assert encoder.replicated_activation_bytes == 10_240
    assert decoder.replicated_activation_bytes == 17_408
    assert encoder.sharded_activation_bytes == 24_736
    assert decoder.sharded_activation_bytes == 33_088


@pytest.mark.parametrize(
    ("sizes", "kind", "forward", "backward"),
    [
        (GPT2, "embedding", 1, 0),
        (GPT2, "block", 2, 2),
        (GPT2, "head", 0, 1),
        (MIXTRAL, "block", 2, 2),
        (DEEPSEEK, "dense_block", 2, 2),
        (DEEPSEEK, "block", 3, 3),
        (T5_SMALL, "embedding", 2, 0),
        (T5_SMALL, "encoder", 2, 2),
        (T5_SMALL, "decoder", 3, 4),
    ],
)
def test_all_reduces(sizes: TransformerSizes, kind: str, forward: int, backward: int) -> None:
    """Two per block and direction, three with shared experts; decoder: see `cross_attention`."""
    found = layer(build(sizes, 8), kind)
    assert (found.forward_all_reduces, found.backward_all_reduces) == (forward, backward)


def test_router_and_latent_down_projections_are_replicated() -> None:
    """The router and the down-projections of latent attention are not split over tp."""
    # norms 2 * 7168, down 7168 * (1536 + 576), their norms 1536 + 512, router 7168 * 256
    block = layer(build(DEEPSEEK, 8), "block")
    assert block.replicated_parameters == 14_336 + 15_138_816 + 2_048 + 1_835_008


def test_lookup_and_projection_of_the_vocabulary() -> None:
    """2 s h V; kept are the input, 2 s h, and logits of 4 s V, which no precision widens."""
    part = projection(3, 5, 7)
    assert (part["forward_flops"], part["kernels"], part["memory_kernels"]) == (210, 8, 7)
    assert part["replicated_activation_bytes"] == 30
    assert part["sharded_activation_bytes"] == part["fixed_sharded_bytes"] == 84
    wide = layer_of(part, "head", factor=2, input_bytes=1, vocabulary=(7, 5), tied_copy=True)
    assert (wide.replicated_activation_bytes, wide.sharded_activation_bytes) == (60, 84)
    assert (wide.is_block, wide.parameters, wide.vocabulary_rows) == (False, 0, 7)
    ids = lookup(15, dropout=True, streams=2)
    assert (ids["kernels"], ids["forward_all_reduces"]) == (4, 2)
    assert ids["replicated_activation_bytes"] == ids["fixed_replicated_bytes"] == 15
