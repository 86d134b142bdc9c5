"""The text of an instance with the corrections that its measured steps give."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean

from formulations.instance import Instance
from solver.measure.fitting import Fit
from solver.measure.steps import MeasuredStep, corrections


@dataclass(frozen=True)
class Corrected:
    """Measured steps, the factors fitted to them, and by how much memory was above the model's."""

    source: str
    instance: Instance
    steps: Sequence[MeasuredStep]
    fit: Fit
    memory_headroom: float | None  #: share of the memory; None where no memory was measured

    def error(self, *, corrected: bool) -> float:
        """Mean |error| of the steps that the factors were fitted to."""
        predicted = (
            self.fit.predicted_s(step) if corrected else step.predicted_s() for step in self.steps
        )
        pairs = zip(predicted, self.steps, strict=True)
        return fmean(abs(time_s / step.measured_s - 1) for time_s, step in pairs)


def memory_headroom(measured: Sequence[tuple[MeasuredStep, float | None]]) -> float | None:
    """Share to leave free so that no measured peak would have been above what is left.

    Where p was predicted and q > p measured, p must be at most (1 - share) of the memory for q to
    fit: share = 1 - p / q.
    """
    shares = [1 - step.peak_bytes / size for step, size in measured if size is not None]
    return max(0.0, *shares) if shares else None


def section(found: Corrected) -> str:
    """The section `calibration`."""
    fit, lines = found.fit, ["", "# Written by `hetplan calibrate`.", "calibration:"]
    lines.append(f"  source: {json.dumps(found.source)}")
    errors = {
        "expected_error": fit.expected_error(),
        "expected_error_elsewhere": fit.expected_error_elsewhere(),
    }
    lines += [f"  {name}: {error:.4f}" for name, error in errors.items() if error is not None]
    if found.memory_headroom is not None:
        lines.append(f"  memory_headroom: {found.memory_headroom:.4f}")
    lines.append("  factors:  # layer kind -> GPU -> tp -> micro-batch -> of the layer's times")
    tree: dict[str, dict[str, dict[int, dict[int, float]]]] = {}
    for kernels, factors in sorted(fit.own.items()):
        for one in corrections(found.instance, kernels, factors):
            degrees = tree.setdefault(one.kind, {}).setdefault(one.gpu, {})
            degrees.setdefault(one.tp, {})[one.micro_batch] = one.factor
    for kind, gpus in tree.items():
        lines.append(f"    {kind}:")
        for gpu, degrees in gpus.items():
            lines.append(f"      {json.dumps(gpu)}:")
            for tp, curve in degrees.items():
                texts = ", ".join(f"{b}: {factor:.4f}" for b, factor in curve.items())
                lines.append(f"        {tp}: {{{texts}}}")
    return "\n".join(lines) + "\n"


def summary(found: Corrected) -> list[str]:
    """What `calibrate` prints, line by line."""
    fit, steps = found.fit, found.steps
    before, after = (100 * found.error(corrected=one) for one in (False, True))
    lines = [f"error of these {len(steps)} steps: {before:.2g} % as modelled, {after:.2g} % now"]
    known = (
        (fit.expected_error(), "these degrees and micro-batches"),
        (fit.expected_error_elsewhere(), "others"),
    )
    for error, where in known:
        text = "not known, too few steps" if error is None else f"{100 * error:.2g} %"
        lines.append(f"expected error of plans with {where}: {text}")
    for kernels, factors in sorted(fit.own.items()):
        number = sum(step.kernels == kernels for step in steps)
        lines.append(
            f"{kernels.gpu}, tensor {kernels.tp}, micro-batch {kernels.micro_batch}: blocks x "
            f"{exp(factors.blocks):.3f}, embedding and head x {exp(factors.ends):.3f} "
            f"({number} step{'s' if number > 1 else ''})"
        )
    if found.memory_headroom is not None:
        share = f"{100 * found.memory_headroom:.2g} %"
        lines.append(f"memory: measured peaks ask for {share} of head-room")
    return lines
