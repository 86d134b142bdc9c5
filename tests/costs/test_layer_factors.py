"""Layers measured on a GPU type: met where they stand, felt near, unfelt far away."""

from math import exp, hypot
from pathlib import Path

import numpy as np
import pytest

from formulations.costs.compute import layer_times
from formulations.costs.layer_factors import (
    BLOCKS,
    CELL,
    ENDS,
    TOKENS,
    KernelShape,
    measured_layers,
    posterior,
    prior,
)
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import Degrees

INSTANCE = """
name: small
workload:
  sizes: {{hidden_size: {width}, layers: 4, heads: 16, vocabulary_size: 50257}}
  sequence_length: 1024
  global_batch: 32
  precision: {precision}
  flash_attention: {fused}
cluster:
  groups:
    - name: node
      gpu:
        name: measured
        peak: {{fp16: 312 TFLOP/s, fp32: 19.5 TFLOP/s}}
        compute_capability: 8.0
        memory: 80 GiB
        memory_bandwidth: 2 TB/s
        link: NVLink 3
        measured_layers:
          plain_attention:
            source: test
            evidence: 3 steps
            precisions: [fp16]
            blocks: {{1024: {{1: {{1024: 0.8, 4096: 0.9}}, 2: {{1024: 1.2}}}}}}
            ends: {{1024: {{1: {{1024: 2.0}}}}}}
      gpus_per_node: 8
      nodes: 1
"""


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


@pytest.mark.parametrize(
    ("tp", "b", "blocks", "origin"),
    [
        (1, 1, 0.8, "measured_layers"),
        (1, 2, (0.8 * 0.9) ** 0.5, "near_measured_layers"),
        (2, 1, 1.2, "measured_layers"),
    ],
)
def test_layer_times_have_the_factor(tp: int, b: int, blocks: float, origin: str) -> None:
    """Of blocks theirs, of embedding and head theirs; backward as forward; traffic without."""
    instance = _instance()
    group = instance.cluster.groups[0]
    without = instance.but(
        cluster=instance.cluster.with_groups([group.but(gpu=group.gpu.but(measured_layers={}))])
    )
    idle = [layer_times(each, (Degrees(tp=tp),), b, "none") for each in (instance, without)]
    link = group.intra_node.but(bandwidth_bytes_per_s=1e17, latency_s=0.0)
    free = [
        layer_times(
            each.but(
                cluster=each.cluster.with_groups([each.cluster.groups[0].but(intra_node=link)])
            ),
            (Degrees(tp=tp),),
            b,
            "none",
        )
        for each in (instance, without)
    ]
    for name in ("forward_ns", "backward_ns", "weight_ns"):
        ratio = getattr(free[0], name) / np.maximum(1, getattr(free[1], name))
        assert ratio[1:-1] == pytest.approx(blocks, rel=0.02)
    ends = posterior({1024: {1: {1024: 2.0}}}, [KernelShape(1024, tp, 1024 * b)], ENDS)[0][0]
    ratio = free[0].forward_ns / free[1].forward_ns
    assert ratio[[0, -1]] == pytest.approx(exp(ends), rel=1e-3)
    traffic = [
        times.forward_ns[1] - bare.forward_ns[1] for times, bare in zip(idle, free, strict=True)
    ]
    assert traffic[0] == pytest.approx(traffic[1], abs=2)
    assert origin in idle[0].origins
    assert idle[1].origins == {"analytic"}


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
