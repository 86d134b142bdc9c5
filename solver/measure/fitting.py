"""Factors of layer times from measured steps: few, noisy, and several per kernel shape or none.

Of kernel shape k on a GPU type, log factor of blocks and of ends: a + d_k, with a ~ N(0, COMMON^2)
shared by the type's shapes and d_k ~ N(0, OWN^2) its own; a measured step's log time is the
simulated one's of these factors and N(0, NOISE^2). The factors are the most probable ones, by
Gauss-Newton on the simulator (Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.5, for
the prior; sections 4.1 and 13.3 for the mode). So one step moves both factors of its shape, a
second one with another share of embedding and head tells them apart, and a shape that nobody
measured takes a. Errors are cross-validated on the last linearisation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from formulations.instance.calibration import LEAST_FACTOR, MOST_FACTOR
from solver.measure.steps import Factors, Kernels, MeasuredStep

#: Standard deviations of logarithms: of a measured step; of what a GPU type's kernels are off
#: together; of one kernel shape's own. Those of 780 published steps on A100 (vTrain, MICRO 2024)
#: and our analytic model: 0.02, 0.4, 0.15.
NOISE, COMMON, OWN = 0.02, 0.5, 0.15
DIFFERENCE = 1e-3
MOST_ROUNDS = 4
CLOSE = 1e-4

Floats = NDArray[np.float64]
NEUTRAL = Factors(0.0, 0.0)


@dataclass(frozen=True)
class Tangent:
    """Log time of a step near some factors: `log_s` there, and its slopes in both."""

    step: MeasuredStep
    at: Factors
    log_s: float
    slopes: tuple[float, float]

    def log_time(self, factors: Factors) -> float:
        """At other factors, linearly."""
        moved = (new - old for new, old in zip(factors, self.at, strict=True))
        return self.log_s + sum(d * slope for d, slope in zip(moved, self.slopes, strict=True))


def _tangent(step: MeasuredStep, at: Factors) -> Tangent:
    here = log(step.predicted_s(at))
    blocks = log(step.predicted_s(Factors(at.blocks + DIFFERENCE, at.ends)))
    ends = log(step.predicted_s(Factors(at.blocks, at.ends + DIFFERENCE)))
    return Tangent(step, at, here, ((blocks - here) / DIFFERENCE, (ends - here) / DIFFERENCE))


@dataclass(frozen=True)
class Fit:
    """Factors by kernel shape, those of a GPU type's other shapes, and the steps near them."""

    own: Mapping[Kernels, Factors]
    common: Mapping[str, Factors]
    tangents: tuple[Tangent, ...] = ()

    def factors(self, kernels: Kernels) -> Factors:
        """Of any shape."""
        return self.own.get(kernels) or self.common.get(kernels.gpu, NEUTRAL)

    def predicted_s(self, step: MeasuredStep) -> float:
        """A step with these factors."""
        return step.predicted_s(self.factors(step.kernels))

    def expected_error(self) -> float | None:
        """Mean |error| of a step that is left out, of shapes with others; None without any."""
        return self._left_out(elsewhere=False)

    def expected_error_elsewhere(self) -> float | None:
        """The same where all steps of its shape are left out; None without other shapes."""
        return self._left_out(elsewhere=True)

    def _left_out(self, elsewhere: bool) -> float | None:
        errors = []
        for one in self.tangents:
            kernels = one.step.kernels
            others = [
                two
                for two in self.tangents
                if two is not one and not (elsewhere and two.step.kernels == kernels)
            ]
            alike = [two for two in others if two.step.kernels == kernels]
            related = any(two.step.kernels.gpu == kernels.gpu for two in others)
            if related and (elsewhere or alike):
                log_s = one.log_time(_most_probable(others).factors(kernels))
                errors.append(abs(exp(log_s - one.step.log_s) - 1))
        return fmean(errors) if errors else None


def _most_probable(tangents: Sequence[Tangent]) -> Fit:
    """Mode of the linearised posterior: ridge regression on [common | own] log factors."""
    gpus = sorted({one.step.kernels.gpu for one in tangents})
    shapes = sorted({one.step.kernels for one in tangents})
    column = {key: 2 * i for i, key in enumerate([*gpus, *shapes])}
    size, shared = 2 * len(column), 2 * len(gpus)
    precision: Floats = np.diag([COMMON**-2] * shared + [OWN**-2] * (size - shared))
    right = np.zeros(size)
    for one in tangents:
        kernels = one.step.kernels
        row = np.zeros(size)
        for start in (column[kernels.gpu], column[kernels]):
            row[start : start + 2] = one.slopes
        precision += np.outer(row, row) / NOISE**2
        right += row * (one.step.log_s - one.log_time(NEUTRAL)) / NOISE**2
    x = np.linalg.solve(precision, right)

    def found(*keys: str | Kernels) -> Factors:
        blocks, ends = (sum(float(x[column[key] + i]) for key in keys) for i in (0, 1))
        return Factors(_bounded(blocks), _bounded(ends))

    own = {kernels: found(kernels.gpu, kernels) for kernels in shapes}
    return Fit(own, {gpu: found(gpu) for gpu in gpus}, tuple(tangents))


def _bounded(log_factor: float) -> float:
    return min(max(log_factor, log(LEAST_FACTOR)), log(MOST_FACTOR))


def fit(steps: Iterable[MeasuredStep]) -> Fit:
    """The most probable factors of steps of models of one width."""
    steps = list(steps)
    last = Fit({}, {})
    for _ in range(MOST_ROUNDS):
        found = _most_probable([_tangent(step, last.factors(step.kernels)) for step in steps])
        moved = max(
            abs(new - old)
            for kernels, factors in found.own.items()
            for new, old in zip(factors, last.factors(kernels), strict=True)
        )
        last = found
        if moved < CLOSE:
            break
    return last
