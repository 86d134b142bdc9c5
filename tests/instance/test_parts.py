"""Promises of formulations.instance.parts: what a block costs, by hand and as published."""

import pytest

from formulations.instance.parts import Part, layer_of, lookup, projection
from formulations.units import GIB
from tests.architectures import build, gpt, kinds_of_workloads, layer
from tests.oracles.agreement import check_layers, pages_suffice
from tests.recorded import as_recorded, digest

#: FLOPs, parameters and all-reduces of plain attention, networks and experts.
test_plain_blocks_are_those_of_the_pages = pages_suffice(*range(24), check=check_layers)


def test_layers_are_the_recorded_ones() -> None:
    kinds = kinds_of_workloads()
    as_recorded("layers", {name: digest(work.layer_runs) for name, work in kinds.items()})
    wide = layer_of(projection(3, 5, 7) + Part(input_bytes=1, output_tensors=1), "head", 2)
    assert (wide.replicated_activation_bytes, wide.sharded_activation_bytes) == (60, 84)
    assert lookup(3, 5, dropout=True, streams=2)["kernels"] == 4


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
