"""An instance corrected by measured steps: its section `calibration`, and what is said of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import exp, log
from pathlib import Path
from statistics import fmean

from formulations.costs.plan_costs import plan_costs
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from solver.measure.calibration import Factors, Fit, Kernels, MeasuredStep, corrections, fit
from solver.measure.steps_file import read_steps, resized
from solver.report.naming import one_line
from solver.report.quantities import time_text

_MOST_STEPS = 5  # measured steps that are told one by one, those furthest off first


@dataclass(frozen=True)
class Corrected:
    """Measured steps, the factors fitted to them, and by how much memory was above the model's."""

    source: str
    instance: Instance
    steps: Sequence[MeasuredStep]
    fit: Fit
    memory_headroom: float | None  #: share of the memory; None where no memory was measured

    @property
    def factors(self) -> dict[Kernels, Factors]:
        """Of the steps' degrees and micro-batches, in the planned model."""
        workload = self.instance.workload
        width, s = workload.hidden_size, workload.sequence_length
        shapes = {each._replace(width=width, sequence_length=s) for each in self.fit.shapes}
        return {kernels: self.fit.factors(kernels) for kernels in sorted(shapes)}

    @property
    def network(self) -> float:
        """Log factor of what passes between nodes; 0 without one."""
        return next(iter(self.factors.values())).network if self.fit.kept == "all" else 0.0

    @cached_property
    def predictions_s(self) -> list[tuple[float, float]]:
        """[step] as modelled, and with the factors."""
        return [(step.predicted_s(), self.fit.predicted_s(step)) for step in self.steps]

    def error(self, *, corrected: bool) -> float:
        """Mean |error| of the steps that the factors were fitted to."""
        pairs = zip(self.predictions_s, self.steps, strict=True)
        return fmean(abs(times_s[corrected] / step.measured_s - 1) for times_s, step in pairs)


def memory_headroom(steps: Sequence[MeasuredStep]) -> float | None:
    """Share to leave free so that no measured peak would have been above what is left.

    Where p was predicted and q > p measured, p must be at most (1 - share) of the memory for q to
    fit: share = 1 - p / q.
    """
    shares = [
        1 - int(plan_costs(step.instance, step.plan).memory_bytes.max()) / step.memory_bytes
        for step in steps
        if step.memory_bytes is not None
    ]
    return max(0.0, *shares) if shares else None


def curves(texts: Mapping[tuple[str, Kernels], str]) -> Iterator[str]:
    """Lines of layer kind -> GPU -> tp -> micro-batch -> text, in the order of the texts."""
    tree: dict[str, dict[str, dict[int, list[str]]]] = {}
    for (kind, (gpu, tp, b, *_)), text in texts.items():
        degrees = tree.setdefault(kind, {}).setdefault(gpu, {})
        degrees.setdefault(tp, []).append(f"{b}: {text}")
    for kind, gpus in tree.items():
        yield f"  {kind}:"
        for gpu, degrees in gpus.items():
            yield f"    {json.dumps(gpu)}:"
            yield from (f"      {tp}: {{{', '.join(curve)}}}" for tp, curve in degrees.items())


def section(corrected: Corrected) -> str:
    """The section `calibration`."""
    fit, lines = corrected.fit, ["", "# Written by `hetplan calibrate`.", "calibration:"]
    lines.append(f"  source: {json.dumps(corrected.source)}")
    errors = {
        "expected_error": fit.expected_error(),
        "expected_error_elsewhere": fit.expected_error(elsewhere=True),
    }
    lines += [f"  {name}: {error:.4f}" for name, error in errors.items() if error is not None]
    if corrected.memory_headroom is not None:
        lines.append(f"  memory_headroom: {corrected.memory_headroom:.4f}")
    if network := corrected.network:
        lines.append(f"  network: {exp(network):.4f}  # of what passes between nodes")
    lines.append("  factors:  # layer kind -> GPU -> tp -> micro-batch -> of the layer's times")
    texts = {
        (kind, kernels): f"{factor:.4f}"
        for kernels, factors in corrected.factors.items()
        for kind, factor in corrections(corrected.instance, factors).items()
    }
    lines += (f"  {line}" for line in curves(texts))
    return "\n".join(lines) + "\n"


def summary(corrected: Corrected) -> list[str]:
    """What `calibrate` prints, line by line."""
    fit, steps = corrected.fit, corrected.steps
    before, after = (100 * corrected.error(corrected=applied) for applied in (False, True))
    lines = [f"error of these {len(steps)} steps: {before:.2g} % as modelled, {after:.2g} % now"]
    for elsewhere, where in ((False, "these degrees and micro-batches"), (True, "others")):
        error = fit.expected_error(elsewhere)
        text = "not known, too few steps" if error is None else f"{100 * error:.2g} %"
        lines.append(f"expected error of plans with {where}: {text}")
    lines += [fit.told(gpu) for gpu in sorted({shape.gpu for shape in fit.shapes})]
    for kernels, factors in corrected.factors.items():
        number = sum(shape[:3] == kernels[:3] for shape in fit.shapes)
        lines.append(
            f"{kernels.gpu}, tensor {kernels.tp}, micro-batch {kernels.micro_batch}: blocks take "
            f"{_longer(factors.blocks)}, embedding and head {_longer(factors.ends)} than modelled "
            f"({number} step{'s' if number > 1 else ''})"
        )
    if corrected.network:
        lines.append(f"traffic between nodes takes {_longer(corrected.network)} than modelled")
    pairs = list(zip(corrected.predictions_s, steps, strict=True))
    pairs.sort(key=lambda pair: -abs(log(pair[0][0] / pair[1].measured_s)))
    for (modelled_s, corrected_s), step in pairs[:_MOST_STEPS]:
        ran = "/".join(dict.fromkeys(shape.gpu for shape in step.shapes))
        lines.append(
            f"{one_line(step.plan.config)} on {ran}: {time_text(step.measured_s)} measured, "
            f"{time_text(modelled_s)} modelled, {time_text(corrected_s)} corrected"
        )
    if corrected.memory_headroom is not None:
        share = f"{100 * corrected.memory_headroom:.2g} %"
        lines.append(f"memory: measured peaks ask for {share} of head-room")
    return lines


def _longer(log_factor: float) -> str:
    """How much longer than modelled something takes."""
    share = 100 * (exp(log_factor) - 1)
    return f"{abs(share):.1f} % {'longer' if share >= 0 else 'shorter'}"


def calibrated(text: str, name: str, folder: Path, measured: Path) -> tuple[Corrected, str]:
    """The text of an instance corrected by a CSV file of measured steps, with their section.

    name: for errors. folder: where its paths start. Raises InstanceError for a calibrated one.
    """
    planned = parse_instance(text, name, folder)
    if planned.calibration is not None:
        allowed = "the instance without it, and all measured steps in one file"
        raise InstanceError(name, "a calibration already", allowed)
    steps = read_steps(measured, planned, partial(resized, text, name, folder))
    source = f"{measured.name}, {len(steps)} measured step{'s' if len(steps) > 1 else ''}"
    corrected = Corrected(source, planned, steps, fit(steps), memory_headroom(steps))
    return corrected, text.rstrip("\n") + "\n" + section(corrected)
