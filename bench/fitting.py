"""Errors of the compute model on observations, and the GPU figures that make them least.

The model is `formulations.costs.compute.analytic_s`, called here and nowhere repeated.
Least Huber loss (knee at 10 %) of log(model / published), every source with equal weight, by
Levenberg-Marquardt (Marquardt 1963, doi 10.1137/0111030) on the logarithms of the free figures.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bench.published_times import Observation, PassTimes, one_node
from formulations.costs.compute import Passes, analytic_s
from formulations.instance import GpuType, Layer
from formulations.instance.workload import Precision

Floats = NDArray[np.float64]

HUBER_KNEE = 0.1
MOST_STEPS = 60
DIFFERENCE = 1e-4


def pass_times(gpu: GpuType, precision: Precision) -> PassTimes:
    """Seconds of the passes of any layer on this GPU."""
    group = one_node(gpu, 1)

    @cache
    def passes_s(layer: Layer, tp: int, micro_batch: int) -> Passes:
        return analytic_s(layer, group, precision, tp, micro_batch)

    return passes_s


def log_errors(observations: Sequence[Observation], gpus: Mapping[str, GpuType]) -> Floats:
    """log(model / published) of every observation."""
    keys = {(one.gpu, one.precision, one.on_device) for one in observations}
    times = {
        (gpu, precision, on_device): pass_times(
            gpus[gpu].but(launch_overhead_s=0.0) if on_device else gpus[gpu], precision
        )
        for gpu, precision, on_device in keys
    }
    ratios = [
        one.prediction.predicted_s(times[one.gpu, one.precision, one.on_device]) / one.published_s
        for one in observations
    ]
    found: Floats = np.log(np.array(ratios))
    return found


def fit(observations: Sequence[Observation], start: GpuType, free: Sequence[str]) -> GpuType:
    """`start` with the fields `free` of least loss; all observations are on this GPU type.

    Start with a launch overhead that is too high rather than too low: where launches bound no
    row, the loss has no slope in it.
    """
    sources = [one.source for one in observations]
    weights = np.array([1 / sources.count(source) for source in sources])

    def typed(x: Floats) -> GpuType:
        return start.model_copy(update=dict(zip(free, np.exp(x).tolist(), strict=True)))

    def errors(x: Floats) -> Floats:
        return log_errors(observations, {start.name: typed(x)})

    x, damping = np.log(np.array([getattr(start, name) for name in free])), 1e-2
    residual = errors(x)
    for _ in range(MOST_STEPS):
        jacobian = np.stack(
            [(errors(x + DIFFERENCE * axis) - residual) / DIFFERENCE for axis in np.eye(len(x))],
            axis=1,
        )
        step = _damped_step(jacobian, residual, weights, damping)
        moved = errors(x + step)
        if _loss(moved, weights) < _loss(residual, weights):
            x, residual, damping = x + step, moved, damping / 4
        else:
            damping *= 4
    return typed(x)


def _damped_step(jacobian: Floats, residual: Floats, weights: Floats, damping: float) -> Floats:
    """Step of the iteratively reweighted problem; at most a factor e per parameter."""
    bent = weights * np.minimum(1, HUBER_KNEE / np.maximum(np.abs(residual), 1e-12))
    hessian = jacobian.T @ (bent[:, None] * jacobian)
    damped = hessian + damping * np.diag(np.diag(hessian) + 1e-12)
    return np.clip(np.linalg.solve(damped, -jacobian.T @ (bent * residual)), -1, 1)


def _loss(residual: Floats, weights: Floats) -> float:
    size = np.abs(residual)
    bent = np.where(size < HUBER_KNEE, size**2 / 2, HUBER_KNEE * (size - HUBER_KNEE / 2))
    return float(weights @ bent)
