"""Promises of formulations.instance.transformer, parts and sizes."""

import pytest
from pydantic import BaseModel, ValidationError

from formulations.errors import InstanceError
from formulations.instance.sizes import (
    LatentAttentionSizes,
    MoeSizes,
    TransformerSizes,
    WindowSizes,
)
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Layer, Workload
from formulations.units import GIB
from tests.architectures import LLAMA3, LLAMA_STYLE, MIXTRAL

GPT2 = TransformerSizes(
    hidden_size=768, layers=12, heads=12, vocabulary_size=50257, learned_positions=1024
)
T5_SMALL = TransformerSizes(
    hidden_size=512,
    layers=6,
    decoder_layers=6,
    heads=8,
    head_dim=64,
    ffn_size=2048,
    vocabulary_size=32128,
    relative_position_buckets=32,
    norm="rmsnorm",
    qkv_biases=False,
    output_bias=False,
    ffn_biases=False,
)
DEEPSEEK = LLAMA_STYLE.but(
    hidden_size=7168,
    layers=61,
    heads=128,
    kv_heads=None,
    latent_attention=LatentAttentionSizes(
        query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128
    ),
    ffn_size=18432,
    moe=MoeSizes(
        experts=256,
        experts_per_token=8,
        ffn_size=2048,
        shared_experts=1,
        dense_first_layers=3,
    ),
)
MOE = {"experts": 4, "experts_per_token": 2, "ffn_size": 8}
LATENT = {"kv_rank": 8, "nope_head_dim": 8, "rope_head_dim": 8, "value_head_dim": 8}


def gpt(hidden: int, layers: int, heads: int, vocabulary: int, positions: int) -> TransformerSizes:
    """A GPT with 4h feed-forward network."""
    return TransformerSizes(
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        vocabulary_size=vocabulary,
        learned_positions=positions,
    )


def build(sizes: TransformerSizes, s: int, flash: bool = False) -> Workload:
    """Workload of one batch of 8 sequences."""
    return build_workload(
        sizes,
        name="w",
        source="test",
        sequence_length=s,
        global_batch=8,
        flash_attention=flash,
    )


def layer(workload: Workload, kind: str) -> Layer:
    """The first layer of a kind."""
    return next(one for one in workload.layers if one.kind == kind)


def test_gpt_block_forward_flops() -> None:
    """A GPT block costs 24 s h^2 + 4 s^2 h (PROBLEM section 4)."""
    # s = 1024, h = 768: 24 * 1024 * 589824 + 4 * 1048576 * 768 = 14495514624 + 3221225472
    block = layer(build(GPT2, 1024), "block")
    assert block.forward_flops == 17_716_740_096


def test_iteration_flops_of_narayanan() -> None:
    """Three forward passes match Narayanan et al. 2021, appendix, without recomputation.

    There 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) counts four passes of the blocks and the head's
    6 B s h V; per sequence and without the recomputed pass: 72 s l h^2 (1 + s/(6h)) + 6 s h V.
    """
    s, h, layers, v = 2048, 12288, 80, 51200
    workload = build(gpt(h, layers, 96, v, s), s)
    blocks = 72 * s * layers * h * h + 12 * s * s * layers * h
    assert 3 * workload.forward_flops == blocks + 6 * s * h * v


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
    ("window", "s", "kinds"),
    [
        (WindowSizes(tokens=7, layers=[0, 1, 3]), 8, "sliding_block 2, block 1, sliding_block 1"),
        (WindowSizes(tokens=8, layers=[0, 1, 3]), 8, "block 4"),
        (WindowSizes(tokens=7), 8, "block 4"),
    ],
)
def test_kinds_of_sliding_blocks(window: WindowSizes, s: int, kinds: str) -> None:
    """Blocks are `sliding_block` where a window makes them cheaper than others of the model."""
    sizes = LLAMA3.but(layers=4, window=window)
    blocks = build(sizes, s, flash=True).layer_runs[1:-1]
    assert ", ".join(f"{run.layer.kind} {run.count}" for run in blocks) == kinds


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


@pytest.mark.parametrize("tied", [True, False])
def test_multi_token_prediction_holds_a_copy_of_the_embedding(tied: bool) -> None:
    """The head holds the embedding's matrix beside its own where it lies on another stage."""
    sizes = LLAMA3.but(tied_embeddings=tied, mtp_layers=1)
    head = layer(build(sizes, 8), "head")
    assert head.parameters_per_gpu(1, 2) - head.parameters_per_gpu(1, 1) == 128256 * 4096
    # norms before the product, its 2 h^2, a block, norms before both projections, untied matrix
    block = layer(build(LLAMA3, 8), "block").parameters
    own = 2 * 4096 + 2 * 4096**2 + block + 2 * 4096 + (not tied) * 128256 * 4096
    assert head.parameters == own


def test_head_flops_and_embedding_flops() -> None:
    """The head costs 2 s h V, the embedding nothing."""
    workload = build(GPT2, 1024)
    # 2 * 1024 * 768 * 50257
    assert layer(workload, "head").forward_flops == 79_047_426_048
    assert layer(workload, "embedding").forward_flops == 0


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


def test_flash_attention_saves_kernels() -> None:
    """Flash attention is one launch in place of four with dropout."""
    # norm, qkv, qk, softmax, dropout, pv, out, add; norm, fc1, gelu, fc2, add
    assert layer(build(GPT2, 8), "block").kernels == 13
    assert layer(build(GPT2, 8, flash=True), "block").kernels == 10


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


def test_head_activations() -> None:
    """The head keeps norm and projection inputs and fp32 logits."""
    head = layer(build(GPT2, 1024), "head")
    assert head.replicated_activation_bytes == 4 * 1024 * 768
    assert head.sharded_activation_bytes == 4 * 1024 * 50257


def test_full_recomputation_keeps_the_input() -> None:
    """A block's input is 2 s h bytes."""
    assert layer(build(GPT2, 1024), "block").input_bytes == 2 * 1024 * 768


def test_encoder_decoder_layers() -> None:
    """An encoder-decoder has encoder, decoder layers, and a decoder with cross-attention."""
    workload = build(T5_SMALL, 2)
    kinds = [(run.layer.kind, run.count) for run in workload.layer_runs]
    stack = [("encoder", 6), ("decoder", 1), ("decoder", 5)]
    assert kinds == [("embedding", 1), *stack, ("head", 1)]
    # per token: encoder 4 * 512^2 + 2 * 512 * 2048 = 3145728; s = 2: 4 * that + 4 * 4 * 512
    assert layer(workload, "encoder").forward_flops == 12_582_912 + 8_192
    # decoder: cross-attention adds 4 * 512^2 = 1048576 per token and as many scores
    assert layer(workload, "decoder").forward_flops == 16_777_216 + 16_384


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


@pytest.mark.parametrize(("sizes", "bytes_per_sequence"), [(GPT2, 1536), (T5_SMALL, 1024)])
def test_boundary_carries_the_activations(sizes: TransformerSizes, bytes_per_sequence: int) -> None:
    """A tensor is 2 s h; encoder blocks hand on one, decoder blocks the encoder's output too."""
    workload = build(sizes, 1)
    assert workload.boundary_bytes == bytes_per_sequence
    assert {run.layer.output_tensors for run in workload.layer_runs if run.layer.is_block} == (
        {1, 2} if sizes is T5_SMALL else {1}
    )


def test_first_decoder_block_holds_a_copy_of_the_embedding() -> None:
    """32,128 x 512 parameters more per GPU where there are several stages; none of the model's."""
    workload = build(T5_SMALL, 1)
    first, other = workload.layer_runs[2].layer, workload.layer_runs[3].layer
    assert first.parameters_per_gpu(1, 2) - other.parameters_per_gpu(1, 2) == 32_128 * 512
    assert first.parameters_per_gpu(1, 1) == other.parameters_per_gpu(1, 1)
    assert first.parameters == other.parameters


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


def test_block_parameters_per_gpu() -> None:
    """Products and their column biases are split; norms and row biases are not."""
    # sharded: 768 * 2304 + 2304 + 768^2 + 768 * 3072 + 3072 + 3072 * 768 = 7083264
    # replicated: 768 + 768 + 2 * 2 * 768 = 4608
    block = layer(build(GPT2, 8), "block")
    assert block.parameters_per_gpu(tp=2, pp=1) == 3_541_632 + 4_608


def test_embedding_parameters_per_gpu_are_padded() -> None:
    """The vocabulary is padded to a multiple of 128 tp; positions are held whole."""
    # 50257 -> 50432 = 197 * 256; 25216 * 768 + 1024 * 768
    embedding = layer(build(GPT2, 8), "embedding")
    assert embedding.parameters_per_gpu(tp=2, pp=1) == 19_365_888 + 786_432


def test_tied_head_holds_a_copy_only_in_a_pipeline() -> None:
    """A tied head on one stage holds only its norm; on another stage also the matrix."""
    head = layer(build(GPT2, 8), "head")
    assert head.parameters_per_gpu(tp=2, pp=1) == 1_536
    assert head.parameters_per_gpu(tp=2, pp=2) == 1_536 + 19_365_888


def test_router_and_latent_down_projections_are_replicated() -> None:
    """The router and the down-projections of latent attention are not split over tp."""
    # norms 2 * 7168, down 7168 * (1536 + 576), their norms 1536 + 512, router 7168 * 256
    block = layer(build(DEEPSEEK, 8), "block")
    assert block.replicated_parameters == 14_336 + 15_138_816 + 2_048 + 1_835_008


def test_parameters_count_tied_matrices_once() -> None:
    """A tied head adds no parameters, an untied one adds V h."""
    untied = GPT2.but(tied_embeddings=False)
    assert build(GPT2, 8).parameters == 124_439_808
    assert build(untied, 8).parameters == 124_439_808 + 50257 * 768


def test_sequence_longer_than_position_table() -> None:
    """A sequence longer than the learned positions is refused, one as long is not."""
    build(GPT2, 1024)
    with pytest.raises(InstanceError, match=r"1025 on w with 1024 learned.*1 to 1024"):
        build(GPT2, 1025)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 13}, "heads 13 do not divide hidden_size 768; give head_dim"),
        ({"kv_heads": 5}, "kv_heads 5 do not divide heads 12"),
        ({"hidden_size": 0}, "greater than or equal to 1"),
        ({"hidden_size": 10**8}, "less than or equal to 10000000"),
        ({"layers": -1}, "greater than or equal to 1"),
        ({"rotary_positions": True}, "more than one of learned_positions"),
        ({"moe": MOE | {"experts_per_token": 5}}, "5, above experts 4"),
        ({"moe": MOE | {"dense_first_layers": 13}}, "dense_first_layers is 13, above layers 12"),
        ({"head_dim": 64, "latent_attention": LATENT}, "latent_attention excludes"),
        ({"decoder_layers": 2, "moe": MOE}, "an encoder-decoder has neither"),
        ({"window": {"tokens": 4, "layers": [12]}}, "window.layers are not all from 0 to 11"),
        ({"decoder_layers": 2, "mtp_layers": 1}, "neither window nor mtp_layers"),
        ({"hidden": 768}, "Extra inputs are not permitted"),
    ],
)
def test_sizes_that_do_not_fit(change: dict[str, object], message: str) -> None:
    """Sizes that do not fit together or are out of range are refused."""
    with pytest.raises(ValidationError, match=message):
        TransformerSizes.model_validate(GPT2.model_dump() | change)


@pytest.mark.parametrize("record", [TransformerSizes, MoeSizes, LatentAttentionSizes, WindowSizes])
def test_schema_describes_every_field(
    record: type[BaseModel],
) -> None:
    """Every field that a user may write has a description in the JSON schema."""
    properties = record.model_json_schema()["properties"]
    assert all("description" in field for field in properties.values())
