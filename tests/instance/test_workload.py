"""What layers and precisions cost in bytes, worked out by hand."""

import pytest

from formulations.instance import Layer
from formulations.instance.transformer import build_workload
from formulations.instance.workload import OPTIMIZER_BYTES, PRECISIONS, OptimizerState, Precision
from tests.architectures import GPT2, T5_SMALL, build

S, H, HEADS = 8, 4, 2
SIZES = GPT2.but(hidden_size=H, layers=1, heads=HEADS, vocabulary_size=128)
FIELDS = {"name": "w", "source": "t", "sequence_length": S, "global_batch": 1}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_in_every_precision(precision: Precision) -> None:
    """16 bit: parameter 2, Adam's state 12; 32 bit: 4 and 8. Masks and logits are as wide in all.

    Korthikanti et al. 2023, s h 34 + 5 a s^2 of a block: 2 s h and a s^2 of it are masks of one
    byte. Head: 4 s V, and norm input and projection's input of 2 or 4 s h each.
    """
    workload = build_workload(SIZES, precision=precision, **FIELDS)  # type: ignore[arg-type]
    whole = precision in ("fp32", "tf32")
    width, kept = (4, (66, 9)) if whole else (2, (34, 5))
    assert (workload.parameter_bytes, workload.optimizer_bytes) == ((4, 8) if whole else (2, 12))
    assert workload.copy_bytes == 2 * (precision == "fp8")
    assert workload.boundary_bytes == width * S * H
    block, head = workload.layers[1:]
    assert block.activation_bytes(1) == kept[0] * S * H + kept[1] * HEADS * S * S
    assert head.dense_per_gpu(1, 2) - head.dense_per_gpu(1, 1) == 128 * H  # tied
    assert head.activation_bytes(1) == 4 * S * 128 + 2 * width * S * H


def test_bug_copies_kept_what_followed_from_the_fields_they_replace() -> None:
    """A workload whose layers were asked for has layers with flash attention once it gets that."""
    workload = build(GPT2, 8)
    assert any(layer.core_bytes for layer in workload.layers)
    assert not any(layer.core_bytes for layer in workload.with_flash().layers)
    assert workload.with_flash() == build(GPT2, 8, flash=True)


def test_two_tensors_are_the_largest_message_of_an_encoder_and_a_decoder() -> None:
    assert build(T5_SMALL, 1).largest_message_bytes == 2 * 2 * 512


def test_figures_of_a_layer_by_hand() -> None:
    """100 parameters split, 10 whole; 60 bytes whole and 80 split, 40 of them scores."""
    block = Layer(
        kind="block",
        is_block=True,
        forward_flops=1000,
        sharded_parameters=100,
        replicated_parameters=10,
        expert_parameters=40,
        replicated_activation_bytes=60,
        sharded_activation_bytes=80,
        unsplit_bytes=12,
        core_bytes=40,
        flash_bytes=8,
        released_sharded_bytes=44,
        input_bytes=16,
        kernels=13,
        core_kernels=4,
        memory_kernels=7,
        unweighted_flops=400,
        routed_bytes=5,
        forward_all_reduces=3,
        expert_all_reduces=1,
    )
    # 110; a GPU of two: 30 dense and 20 of experts, and 10 whole
    assert (block.parameters, block.parameters_per_gpu(2, 1)) == (110, 60)
    assert block.experts_per_gpu(2, 4) == 5
    # 60 + 80 / 2; with the sequence split all but 12 are: 12 + 128 / 2
    assert (block.activation_bytes(2), block.activation_bytes(2, True)) == (100, 76)
    assert block.weight_gradient_bytes(2) == 60 + (80 - 44) // 2
    assert block.weight_gradient_share == 600 / 2000
    assert block.recomputed_bytes("none", 2) == (100, 0)
    assert block.recomputed_bytes("full", 2) == (16, 100)
    assert block.recomputed_bytes("full", 2, True) == (8, 76)
    assert block.recomputed_bytes("selective", 2) == (80, 20)
    flash = block.with_flash()
    # one kernel for four, two of which are no products; 32 bytes less are kept, and released
    assert (flash.kernels, flash.memory_kernels, flash.core_kernels) == (10, 5, 0)
    assert (flash.sharded_activation_bytes, flash.released_sharded_bytes) == (48, 12)
    assert flash.with_flash() == flash
    whole = block.with_whole_experts()
    assert (whole.unsplit_bytes, whole.forward_all_reduces) == (2, 2)


@pytest.mark.parametrize("state", OPTIMIZER_BYTES)
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_formats_of_optimizer_states(state: OptimizerState, precision: Precision) -> None:
    """Told by their bytes, with a master copy or without; in 8 bit 8 bytes per block of 2048."""
    formats = {"optimizer_state": state, "precision": precision}
    workload = build_workload(SIZES, **formats, **FIELDS)  # type: ignore[arg-type]
    assert workload.optimizer_state == state
    each = {"fp32": 12, "bf16": 8, "8bit": 6}[state] - (4 if precision == "fp32" else 0)
    assert workload.state_bytes(2049) == each * 2049 + (2 * 8 if state == "8bit" else 0)
    assert workload.but(optimizer_bytes=1).optimizer_state is None
