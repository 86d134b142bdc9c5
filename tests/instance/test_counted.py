"""Promises of formulations.instance.counted."""

from dataclasses import replace

import pytest

from formulations.errors import InstanceError
from formulations.instance.counted import CountedModel, CountedPart
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Workload

BLOCK = CountedPart(
    split_parameters=100,
    whole_parameters=10,
    products=60,
    kernels=9,
    split_kept_bytes=40,
    whole_kept_bytes=32,
    score_columns=16,
    heads=2,
)
LAST = replace(BLOCK, score_columns=0, heads=0)
MODEL = CountedModel(
    hidden_size=8,
    vocabulary_rows=50,
    vocabulary_columns=8,
    tied_embeddings=False,
    blocks=(BLOCK, BLOCK, LAST, BLOCK),
    before=CountedPart(whole_parameters=24),
    behind=CountedPart(whole_parameters=8, kernels=1),
    heads=2,
    num_kv_heads=1,
    dropout=False,
    learned_positions=4,
)


def build(model: CountedModel, s: int, flash: bool = False) -> Workload:
    """Workload of 8 sequences."""
    return build_workload(
        model, name="w", source="t", sequence_length=s, global_batch=8, flash_attention=flash
    )


def test_equal_blocks_are_one_kind() -> None:
    """Blocks are numbered by their figures, in the order of the chain."""
    kinds = [(run.layer.kind, run.count) for run in build(MODEL, 4).layer_runs]
    blocks = [("block", 2), ("block_2", 1), ("block", 1)]
    assert kinds == [("embedding", 1), *blocks, ("head", 1)]


@pytest.mark.parametrize(("tied", "matrices"), [(True, 1), (False, 2)])
def test_parameters(tied: bool, matrices: int) -> None:
    """All parts and the vocabulary matrices, a tied one once."""
    # 4 * 110 + 24 + 8 = 472; a matrix: 50 * 8
    model = replace(MODEL, tied_embeddings=tied)
    assert build(model, 4).parameters == model.parameters == 472 + 400 * matrices


def test_flops_of_a_block() -> None:
    """2 per product and token, and 2 s^2 per score column; none without attention."""
    layers = build(MODEL, 4).layers
    assert layers[1].forward_flops == 2 * 4 * 60 + 2 * 16 * 16
    assert layers[3].forward_flops == 2 * 4 * 60


@pytest.mark.parametrize(("flash", "scores"), [(True, 2 * 4 * 4), (False, 2 * 2 * 16)])
def test_activations_of_a_block(flash: bool, scores: int) -> None:
    """Per token what is kept, and per head 2 s^2, or 4 s with flash attention."""
    block = build(MODEL, 4, flash).layers[1]
    assert block.replicated_activation_bytes == 4 * 32
    assert block.sharded_activation_bytes == 4 * 40 + scores


def test_elements_of_32_bit_are_twice_as_wide() -> None:
    """Inputs 2 s h, what is kept of products and norms; token ids, logits and masks are not."""
    fields = {"name": "w", "source": "t", "sequence_length": 4, "global_batch": 8}
    narrow, wide = (
        build_workload(MODEL, precision=precision, **fields).layers  # type: ignore[arg-type]
        for precision in ("bf16", "fp32")
    )
    assert [layer.input_bytes for layer in narrow] == [8 * 4, *[2 * 4 * 8] * 5]
    assert [layer.input_bytes for layer in wide] == [8 * 4, *[4 * 4 * 8] * 5]
    assert wide[1].replicated_activation_bytes == 2 * narrow[1].replicated_activation_bytes
    assert narrow[-1].sharded_activation_bytes == wide[-1].sharded_activation_bytes == 4 * 4 * 50


def test_weight_gradients_need_neither_scores_nor_masks() -> None:
    """Their FLOPs are those of the matrices, and they keep what is neither score nor mask."""
    block = build(replace(MODEL, dropout=True), 4).layers[1]
    assert block.weight_gradient_share == 2 * 4 * 60 / (2 * block.forward_flops)
    assert block.weight_gradient_bytes(tp=1) == 4 * 32 + 4 * 40


def test_learned_positions_bound_the_sequence() -> None:
    """A sequence longer than the position table is refused."""
    with pytest.raises(InstanceError, match="5 on w with 4 learned positions"):
        build(MODEL, 5)
