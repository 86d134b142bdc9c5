"""Promises of formulations.instance.counted."""

from dataclasses import replace

from formulations.instance.counted import CountedModel, CountedPart
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Layer, Precision

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
MODEL = CountedModel(
    hidden_size=8,
    vocabulary_rows=50,
    vocabulary_columns=8,
    tied_embeddings=False,
    blocks=(BLOCK, BLOCK, replace(BLOCK, score_columns=0, heads=0), BLOCK),
    before=CountedPart(whole_parameters=24),
    behind=CountedPart(whole_parameters=8, kernels=1),
    heads=2,
    num_kv_heads=1,
    dropout=False,
    learned_positions=4,
)


def layers(
    model: CountedModel = MODEL, flash: bool = False, precision: Precision = "bf16"
) -> tuple[Layer, ...]:
    """The chain for 4 tokens."""
    fields = {"name": "w", "source": "t", "sequence_length": 4, "global_batch": 8}
    formats = {"flash_attention": flash, "precision": precision}
    return build_workload(model, **fields, **formats).layers  # type: ignore[arg-type]


def test_equal_blocks_are_one_kind() -> None:
    """Blocks are numbered by their figures, in the order of the chain."""
    kinds = ["embedding", "block", "block", "block_2", "block", "head"]
    assert [layer.kind for layer in layers()] == kinds


def test_parameters() -> None:
    """All parts and the vocabulary matrices of 50 * 8, a tied one once."""
    for tied, matrices in ((True, 1), (False, 2)):
        model = replace(MODEL, tied_embeddings=tied)
        assert model.parameters == 4 * 110 + 24 + 8 + 400 * matrices
        assert sum(layer.parameters for layer in layers(model)) == model.parameters


def test_flops_and_activations_of_a_block() -> None:
    """2 per product and token, 2 s^2 per score column; kept per head 2 s^2, or 4 s with flash."""
    chain, flash = layers(), layers(flash=True)
    assert chain[1].forward_flops == flash[1].forward_flops == 2 * 4 * 60 + 2 * 16 * 16
    assert chain[3].forward_flops == 2 * 4 * 60
    assert chain[1].replicated_activation_bytes == 4 * 32
    assert chain[1].sharded_activation_bytes == 4 * 40 + 2 * 2 * 16
    assert flash[1].sharded_activation_bytes == 4 * 40 + 2 * 4 * 4
    assert chain[1].key_value_bytes == 2 * 4 * 16 * 1 // 2


def test_elements_of_32_bit_are_twice_as_wide() -> None:
    """Inputs 2 s h, what is kept of products and norms; token ids, logits and masks are not."""
    narrow, wide = layers(), layers(precision="fp32")
    assert [layer.input_bytes for layer in narrow] == [8 * 4, *[2 * 4 * 8] * 5]
    assert [layer.input_bytes for layer in wide] == [8 * 4, *[4 * 4 * 8] * 5]
    assert wide[1].replicated_activation_bytes == 2 * narrow[1].replicated_activation_bytes
    assert narrow[-1].sharded_activation_bytes == wide[-1].sharded_activation_bytes == 4 * 4 * 50


def test_weight_gradients_need_neither_scores_nor_masks() -> None:
    """Their FLOPs are those of the matrices, and they keep what is neither score nor mask."""
    block = layers(replace(MODEL, dropout=True))[1]
    assert block.weight_gradient_share == 2 * 4 * 60 / (2 * block.forward_flops)
    assert block.weight_gradient_bytes(tp=1) == 4 * 32 + 4 * 40
