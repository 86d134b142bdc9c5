"""What layers and precisions cost in bytes."""

from typing import get_args

import pytest

from formulations.instance.transformer import build_workload
from formulations.instance.workload import PRECISIONS, Precision, Recompute, padded_vocabulary
from tests.architectures import GPT2, build, kinds_of_workloads
from tests.recorded import Cases, digest, recorded

S, H, HEADS = 8, 4, 2
SIZES = GPT2.but(hidden_size=H, layers=1, heads=HEADS, vocabulary_size=128)
FIELDS = {"name": "w", "source": "t", "sequence_length": S, "global_batch": 1}


@recorded("workload")
def test_figures_of_layers_are_the_recorded_ones() -> Cases:
    """Per GPU of tensor groups of 1 and 4: parameters, what is kept, and in every other form."""
    for name, workload in kinds_of_workloads().items():
        layers = []
        for run in workload.layer_runs:
            layer, parts = run.layer, [run.layer.parameters, run.layer.weight_gradient_share]
            for tp, split in ((1, False), (4, False), (4, True)):
                parts += [layer.dense_per_gpu(tp, 2), layer.dense_per_gpu(tp, 1)]
                parts += [layer.parameters_per_gpu(tp, 2), layer.experts_per_gpu(tp, 2)]
                parts += [layer.activation_bytes(tp, split, for_weights=w) for w in (False, True)]
                parts += [
                    n for way in get_args(Recompute) for n in layer.recomputed_bytes(way, tp, split)
                ]
            layers += [parts, layer.with_flash(), layer.with_flash().with_flash()]
        sizes = [workload.logits_bytes, workload.largest_message_bytes, workload.training_flops]
        sizes += [workload.num_blocks, workload.state_bytes(2049), padded_vocabulary(1000, 2)]
        digests = [digest(layers), digest([workload.with_flash(), workload.whole_experts])]
        yield name, [*sizes, workload.optimizer_state, *digests]


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
    assert workload.copy_bytes == {"fp8": 2, "fp4": 1}.get(precision, 0)
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
