"""Promises of formulations.instance.transformer: the chain of layers, embedding and head."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.sizes import WindowSizes
from tests.architectures import GPT2, LLAMA3, T5_SMALL, build, kinds_of_workloads
from tests.oracles.agreement import check_layers
from tests.recorded import as_recorded, digest


@pytest.mark.parametrize("seed", range(40, 64))
def test_chains_are_those_of_the_pages(seed: int) -> None:
    """FLOPs, parameters and all-reduces of every layer, prediction modules among them."""
    check_layers(seed)


def test_workloads_are_the_recorded_ones() -> None:
    """Every layer and all else of models of every kind, with the parameters published."""
    kinds = kinds_of_workloads()
    figures = {name: [work.parameters, digest(work)] for name, work in kinds.items()}
    as_recorded("transformer", figures)


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
    blocks = build(LLAMA3.but(layers=4, window=window), s, flash=True).layer_runs[1:-1]
    assert ", ".join(f"{run.layer.kind} {run.count}" for run in blocks) == kinds


def test_decoder_blocks_hand_on_two_tensors_and_the_first_holds_the_embedding() -> None:
    """32,128 x 512 parameters more per GPU where there are several stages; none of the model's."""
    workload = build(T5_SMALL, 1)
    runs = [(run.layer.kind, run.count, run.layer.output_tensors) for run in workload.layer_runs]
    stack = [("encoder", 6, 1), ("decoder", 1, 2), ("decoder", 5, 2)]
    assert runs == [("embedding", 1, 1), *stack, ("head", 1, 1)]
    first, second = workload.layer_runs[2].layer, workload.layer_runs[3].layer
    assert first.parameters_per_gpu(1, 2) - second.parameters_per_gpu(1, 2) == 32_128 * 512
    assert first.parameters_per_gpu(1, 1) == second.parameters_per_gpu(1, 1)
    assert first.parameters == second.parameters


def test_sequence_longer_than_position_table() -> None:
    """A sequence longer than the learned positions is refused, one as long is not."""
    build(GPT2, 1024)
    with pytest.raises(InstanceError, match=r"1025 on w with 1024 learned.*1 to 1024"):
        build(GPT2, 1025)
