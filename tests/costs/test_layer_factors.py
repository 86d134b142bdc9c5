"""Layers measured on a GPU type: met where they stand, felt near, unfelt far away."""

from math import exp, hypot
from pathlib import Path

import numpy as np
import pytest

from formulations.costs.compute import TimeColumns
from formulations.costs.layer_factors import (
    BLOCKS,
    CELL,
    TOKENS,
    KernelShape,
    measured_layers,
    posterior,
    prior,
)
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import Degrees
from tests.conftest import text_of
from tests.recorded import as_recorded, summary

INSTANCE = text_of("measured_layers.txt")


def _instance(width: int = 1024, precision: str = "fp16", fused: str = "false") -> Instance:
    text = INSTANCE.format(width=width, precision=precision, fused=fused)
    return parse_instance(text, "small.yaml", Path())


def test_covariance_of_two_shapes() -> None:
    """(1) by hand: widths a factor e^0.25 apart, r = e^-0.5; tokens a factor e^1.5, so e^-1."""
    x, y = KernelShape(1000, 2, 1000), KernelShape(1284, 2, 4482)
    expected = exp(-0.5) * (0.08**2 + 0.11**2 * exp(-1))
    assert prior([x], [y])[0, 0] == pytest.approx(expected, rel=1e-3)
    assert prior([x], [y._replace(tp=1)])[0, 0] == pytest.approx(exp(-0.5) * 0.08**2, rel=1e-3)
    assert TOKENS == 1.5
    assert prior([], [x]).shape == (0, 1)


def test_cells_are_met_and_fade() -> None:
    """At a cell its factor; far from all of them the curve, with the deviation of any shape."""
    cells = {1024: {1: {1024: exp(-0.2), 4096: exp(-0.1)}}}
    sizes = ((1024, 1024), (1024, 2048), (10**9, 1))
    mean, covariance = posterior(cells, [KernelShape(width, 1, n) for width, n in sizes])
    assert mean == pytest.approx([-0.2, -0.15, 0.0], abs=0.01)
    deviations = np.sqrt(np.diag(covariance))
    assert deviations[0] == pytest.approx(CELL, rel=0.1)
    assert deviations[0] < deviations[1] < deviations[2]
    assert deviations[2] == pytest.approx(hypot(BLOCKS.common, BLOCKS.own), rel=1e-3)


def test_layer_times_are_the_recorded_ones() -> None:
    """As without factors but for them; at a cell, between two, and at one of ends and of blocks.

    The time of a block is the curve's times 0.8, without what the tensor group exchanges.
    """
    instance, figures = _instance(), dict[str, object]()
    (group,) = instance.cluster.groups
    bare = group.but(gpu=group.gpu.but(measured_layers={}))
    free = group.intra_node.but(bandwidth_bytes_per_s=1e17, latency_s=0.0)
    for tp, b in ((1, 1), (1, 2), (2, 1)):
        for name, link in (("linked", group.intra_node), ("free", free)):
            groups = [each.but(intra_node=link) for each in (group, bare)]
            made = [instance.but(cluster=instance.cluster.with_groups([g])) for g in groups]
            times = [TimeColumns(each).times((Degrees(tp=tp),), b, "none") for each in made]
            passes = [[t.forward_ns, t.backward_ns, t.weight_ns] for t in times]
            figures[f"{name} {tp} {b}"] = [summary(passes), *(sorted(t.origins) for t in times)]
            if (tp, b) == (1, 1):
                factored, plain = (each.forward_ns[1:-1] for each in times)
                assert factored == pytest.approx(0.8 * plain, rel=0.02)
    as_recorded("layer_factors", figures)


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ({}, True),
        ({"width": 2048}, True),
        ({"width": 2064}, False),
        ({"width": 512}, True),
        ({"width": 496}, False),
        ({"precision": "fp32"}, False),
        ({"fused": "true"}, False),
    ],
)
def test_where_cells_speak(changed: dict[str, str], reached: bool) -> None:
    """Within twice the width, in the same precision and attention."""
    instance = _instance(**changed)  # type: ignore[arg-type]
    measured = measured_layers(instance, instance.cluster.groups[0].gpu)
    assert (measured is not None) == reached
