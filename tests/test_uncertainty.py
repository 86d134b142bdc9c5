"""What steps may be off by: shares of the critical path, and what two plans share cancels."""

from math import exp, hypot
from pathlib import Path

import pytest

from formulations.costs.layer_factors import BLOCKS
from formulations.costs.plan_costs import plan_costs
from formulations.instance.load import parse_instance
from formulations.plan import Degrees
from solver.measure.calibration import megatron_plan
from solver.simulate import step_time_ns
from solver.uncertainty import CONFIGURATION, TOGETHER, StepEstimate, step_estimate

INSTANCE = """
name: small
workload:
  sizes: {hidden_size: 1024, layers: 12, heads: 16, vocabulary_size: 50257}
  sequence_length: 1024
  global_batch: 32
  precision: fp16
cluster:
  groups:
    - {name: node, gpu: A100-80, gpus_per_node: 8, nodes: 1}
search: {recompute: none, zero: 0}
"""


def _estimate(tp: int, dp: int, pp: int) -> StepEstimate:
    instance = parse_instance(INSTANCE, "small.yaml", Path())
    fields = {"degrees": (Degrees(tp=tp),), "dp": dp, "pp": pp, "micro_batch": 1, "vpp": 1}
    more = {"schedule": "1f1b", "recompute": ("none",), "zero": 0, "nodes_used": (1,)}
    plan = megatron_plan(instance, fields | more)
    assert plan is not None
    estimate = step_estimate(instance, plan)
    step_s = step_time_ns(plan_costs(instance, plan)) / 1e9
    assert exp(estimate.log_s) == pytest.approx(step_s)
    assert sum(estimate.shares.values()) == pytest.approx(1, abs=1e-6)
    return estimate


def test_what_two_plans_share_cancels() -> None:
    """The same kernels in another pipeline: nearly what a configuration is off by itself alone."""
    tp1, piped, tp4 = _estimate(1, 8, 1), _estimate(1, 4, 2), _estimate(4, 2, 1)
    assert tp1.deviation > TOGETHER
    assert tp1.deviation_from(tp1) == 0
    assert 2**0.5 * CONFIGURATION < tp1.deviation_from(piped) < 0.05
    assert tp1.deviation_from(tp4) > 0.8 * BLOCKS.own
    assert tp1.deviation_from(tp4) < hypot(tp1.deviation, tp4.deviation)
