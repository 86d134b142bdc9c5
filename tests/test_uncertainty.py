"""What steps may be off by: shares of the critical path, and what two plans share cancels."""

from dataclasses import replace
from math import exp, hypot, sqrt
from pathlib import Path

import pytest

from formulations.costs.layer_factors import BLOCKS
from formulations.costs.plan_costs import plan_costs
from formulations.instance.load import parse_instance
from solver import uncertainty
from solver.simulate import step_time_ns
from tests.export_cases import sharing
from tests.measure.test_calibration import INSTANCE, step_of


def _estimate(tp: int, dp: int, pp: int) -> uncertainty.StepEstimate:
    step = step_of(parse_instance(INSTANCE, "small.yaml", Path()), tp, dp, pp)
    estimate = uncertainty.step_estimate(step.instance, step.plan)
    step_s = step_time_ns(plan_costs(step.instance, step.plan)) / 1e9
    assert exp(estimate.log_s) == pytest.approx(step_s)
    assert sum(estimate.shares.values()) == pytest.approx(1, abs=1e-6)
    return estimate


def test_what_two_plans_share_cancels() -> None:
    """The same kernels in another pipeline: nearly what a configuration is off by itself alone."""
    tp1, piped, tp4 = _estimate(1, 8, 1), _estimate(1, 4, 2), _estimate(4, 2, 1)
    assert tp1.deviation > uncertainty.TOGETHER
    joint = uncertainty.covariance([tp1, piped, tp4])
    to_piped, to_tp4 = (sqrt(joint[0, 0] - 2 * joint[0, i] + joint[i, i]) for i in (1, 2))
    assert 2**0.5 * uncertainty.CONFIGURATION < to_piped < 0.05
    assert 0.8 * BLOCKS.own < to_tp4 < hypot(tp1.deviation, tp4.deviation)


def test_shared_sequences_are_off_by_a_factor_of_their_own() -> None:
    job = sharing("ring")
    shared = uncertainty.step_estimate(job.instance, job.plan)
    others = {term: share for term, share in shared.shares.items() if term.kind != "context"}
    alone = replace(shared, shares=others)
    assert shared.deviation == pytest.approx(hypot(alone.deviation, uncertainty.CONTEXT))
