"""What each precision costs in bytes and in time, worked out by hand."""

from pathlib import Path

import pytest

from formulations.costs.compute import analytic_s
from formulations.costs.memory import layer_memory
from formulations.instance import GpuType, Instance, Layer, Link
from formulations.instance.load import parse_instance
from formulations.instance.transformer import build_workload
from formulations.instance.workload import (
    OPTIMIZER_BYTES,
    PRECISIONS,
    OptimizerState,
    Precision,
)
from tests.architectures import GPT2
from tests.export_cases import instance_of
from tests.small_instances import nodes_of, plain_config

S, H, HEADS = 8, 4, 2
LINK = Link(bandwidth_bytes_per_s=1e18, latency_s=0)
GPU = GpuType(
    name="X",
    source="test",
    peak_flops={"bf16": 1e12, "fp8": 2e12, "tf32": 5e11},
    memory_bytes=1,
    memory_bandwidth_bytes_per_s=1e18,
    link=LINK,
    efficiency_maximum=0.5,
    efficiency_half_flops=0,
    attention_maximum=0.25,
    attention_half_flops=1e9,
    launch_overhead_s=0,
    efficiency_source="test",
    measured_in=("bf16",),
)
GROUP = nodes_of(GPU, name="x", intra_node=LINK, inter_node=LINK)
SHAPE = plain_config((1,))


def instance(precision: Precision, flash: bool = False) -> Instance:
    """One block of GPT on one H100."""
    text = f"""
name: precise
workload:
  sizes: {{hidden_size: {H}, layers: 1, heads: {HEADS}, vocabulary_size: 128}}
  sequence_length: {S}
  global_batch: 1
  precision: {precision}
  flash_attention: {str(flash).lower()}
cluster: {{groups: [{{name: h, gpu: H100, gpus_per_node: 1, nodes: 1}}]}}
"""
    return parse_instance(text, "x.yaml", Path())


def layer(flops: int, attention_flops: int = 0, is_block: bool = True) -> Layer:
    """A layer of products, or of nothing but scores."""
    return Layer(
        kind="block",
        is_block=is_block,
        sharded_parameters=0,
        replicated_parameters=0,
        forward_flops=flops,
        unweighted_flops=flops if attention_flops else 0,
        attention_flops=attention_flops,
        kernels=1,
        replicated_activation_bytes=0,
        sharded_activation_bytes=0,
        input_bytes=0,
    )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_in_every_precision(precision: Precision) -> None:
    """16 bit: parameter 2, Adam's state 12; 32 bit: 4 and 8. Masks and logits are as wide in all.

    Korthikanti et al. 2023, s h 34 + 5 a s^2 of a block: 2 s h and a s^2 of it are masks of one
    byte. Head: 4 s V, and norm input and projection's input of 2 or 4 s h each.
    """
    workload = instance(precision).workload
    whole = precision in ("fp32", "tf32")
    width, kept = (4, (66, 9)) if whole else (2, (34, 5))
    assert (workload.parameter_bytes, workload.optimizer_bytes) == ((4, 8) if whole else (2, 12))
    assert workload.boundary_bytes == width * S * H
    block, head = workload.layers[1:]
    assert block.activation_bytes(1) == kept[0] * S * H + kept[1] * HEADS * S * S
    assert head.activation_bytes(1) == 4 * S * 128 + 2 * width * S * H


def test_fp8_keeps_copies_of_the_blocks_parameters() -> None:
    """2 bytes more per parameter of the block, none of embedding and head."""
    fp8, bf16 = (layer_memory(instance(one), SHAPE)[0] for one in ("fp8", "bf16"))
    more = fp8.weights_bytes - bf16.weights_bytes
    assert more.tolist() == [0, 2 * int(bf16.parameters[1]), 0]
    assert fp8.activation_bytes.tolist() == bf16.activation_bytes.tolist()


def test_products_run_at_their_precisions_peak() -> None:
    """1 GFLOP at half of 1, 2 and 0.5 TFLOP/s; in fp8 the head stays in 16 bit."""
    found = [analytic_s(layer(10**9), GROUP, one, 1, 1).forward for one in ("bf16", "fp8", "tf32")]
    assert found == pytest.approx([2e-3, 1e-3, 4e-3])
    head = analytic_s(layer(10**9, is_block=False), GROUP, "fp8", 1, 1)
    assert head.forward == pytest.approx(2e-3)


def test_kernels_bound_by_memory_start_with_a_latency() -> None:
    """Two of five take 1 ms each; where the type has none they ramp up as the products do, 2 ms."""
    # 10^9 FLOPs at half of 10^12 FLOP/s: 2 ms; ramp = 10^9 / (10^12 * 0.5) = 2 ms
    kernels = {"kernels": 5, "memory_kernels": 2}
    block = layer(10**9).model_copy(update=kernels)
    slow = GPU.but(efficiency_half_flops=1e9)
    for latency_s, expected in ((None, 2e-3 + 5 * 2e-3), (1e-3, 2e-3 + 3 * 2e-3 + 2 * 1e-3)):
        gpu = slow.but(memory_latency_s=latency_s)
        found = analytic_s(block, GROUP.but(gpu=gpu), "bf16", 1, 1)
        assert found.forward == pytest.approx(expected)
        assert found.backward == pytest.approx(2 * expected)


def test_fused_attention_has_figures_of_its_own() -> None:
    """(1 + 1) GFLOP at a quarter of 1 TFLOP/s, in fp8 too; backward twice that over 0.85."""
    for precision in ("bf16", "fp8"):
        passes = analytic_s(layer(2 * 10**9, 10**9), GROUP, precision, 1, 1)
        assert passes == pytest.approx((8e-3, 16e-3 / 0.85))


def test_fused_attention_leaves_the_masked_half_out() -> None:
    """4 s^2 h of model FLOPs, half of them worked out; without it scores are products."""
    flash, plain = (instance("bf16", flash).workload.layers[1] for flash in (True, False))
    for block in (flash, plain):
        assert (block.unweighted_flops, block.attention_flops) == (4 * S * S * H, 2 * S * S * H)
    figures = {"attention_half_flops": 0.0, "attention_maximum": 0.125}
    group = GROUP.but(gpu=GPU.model_copy(update=figures))
    found = [analytic_s(block, group, "bf16", 1, 1).forward for block in (flash, plain)]
    products_s = (flash.forward_flops - 4 * S * S * H) / 5e11
    assert found[0] == pytest.approx(products_s + 2 * S * S * H / 1.25e11, rel=1e-3)
    assert found[1] == pytest.approx(products_s + 4 * S * S * H / 5e11, rel=1e-3)


def test_bug_copies_kept_what_followed_from_the_fields_they_replace() -> None:
    """A workload whose layers were asked for has layers with flash attention once it gets that."""
    workload = instance_of("catalogue: gpt2, flash_attention: false").workload
    assert any(layer.core_bytes for layer in workload.layers)
    assert not any(layer.core_bytes for layer in workload.with_flash().layers)


def test_figures_of_a_layer_by_hand() -> None:
    """100 parameters split, 10 whole; 60 bytes whole and 80 split, 40 of them scores."""
    block = layer(1000).but(
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
    fields = {"name": "w", "source": "t", "sequence_length": 8, "global_batch": 1}
    workload = build_workload(
        GPT2,
        optimizer_state=state,
        precision=precision,
        **fields,  # type: ignore[arg-type]
    )
    assert workload.optimizer_state == state
    each = {"fp32": 12, "bf16": 8, "8bit": 6}[state] - (4 if precision == "fp32" else 0)
    assert workload.state_bytes(2049) == each * 2049 + (2 * 8 if state == "8bit" else 0)
    assert workload.but(optimizer_bytes=1).optimizer_state is None
