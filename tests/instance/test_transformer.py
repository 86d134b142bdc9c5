"""Promises of formulations.instance.transformer: the chain of layers, embedding and head."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.sizes import TransformerSizes, WindowSizes
from tests.architectures import GPT2, LLAMA3, T5_SMALL, build, gpt, layer


def test_iteration_flops_of_narayanan() -> None:
    """Three forward passes match Narayanan et al. 2021, appendix, without recomputation.

    There 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) counts four passes of the blocks and the head's
    6 B s h V; per sequence and without the recomputed pass: 72 s l h^2 (1 + s/(6h)) + 6 s h V.
    """
    s, h, layers, v = 2048, 12288, 80, 51200
    workload = build(gpt(h, layers, 96, v, s), s)
    blocks = 72 * s * layers * h * h + 12 * s * s * layers * h
    assert 3 * workload.forward_flops == blocks + 6 * s * h * v


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


def test_head_activations() -> None:
    """The head keeps norm and projection inputs and fp32 logits."""
    head = layer(build(GPT2, 1024), "head")
    assert head.replicated_activation_bytes == 4 * 1024 * 768
    assert head.sharded_activation_bytes == 4 * 1024 * 50257


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
