"""Factors of layer times from measured steps, and the instance with these corrections.

A measured step is simulated as Megatron-LM's plan of its degrees: equally many blocks on every
chunk, ranks in node order, on nodes of one group alone. One factor multiplies the times of
blocks, another those of embedding and head (the ends). Steps are few, noisy, and several per
kernel shape or none.

Of kernel shape k on a GPU type, log factor of blocks and of ends: a + d_k, with a ~ N(0, COMMON^2)
shared by the type's shapes and d_k ~ N(0, OWN^2) its own; a measured step's log time is the
simulated one's of these factors and N(0, NOISE^2). The factors are the most probable ones, by
Gauss-Newton on the simulator (Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.5, for
the prior; sections 4.1 and 13.3 for the mode). So one step moves both factors of its shape, a
second one with another share of embedding and head tells them apart, and a shape that nobody
measured takes a. Errors are cross-validated on the last linearisation.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.machines import LEAST_FACTOR, MOST_FACTOR
from formulations.instance.profile import Calibration
from formulations.plan import Configuration, Plan
from solver.heuristics.baselines import equal_blocks
from solver.simulate import step_time_ns


class Kernels(NamedTuple):
    """What decides the sizes of a layer's kernels, in a model of one width."""

    gpu: str
    tp: int
    micro_batch: int


class Factors(NamedTuple):
    """Logarithms of what times of blocks, and of embedding and head, are multiplied by."""

    blocks: float
    ends: float


def corrections(instance: Instance, kernels: Kernels, factors: Factors) -> dict[str, float]:
    """What times are multiplied by, for every layer kind of the instance."""
    layers = {run.layer.kind: run.layer.is_block for run in instance.workload.layer_runs}
    return {
        kind: exp(factors.blocks if is_block else factors.ends) for kind, is_block in layers.items()
    }


@dataclass(frozen=True)
class MeasuredStep:
    """A plan and how long its step took."""

    instance: Instance
    plan: Plan
    measured_s: float

    @property
    def kernels(self) -> Kernels:
        """Whose factors decide its time."""
        gpu = self.instance.cluster.groups[0].gpu.name
        config = self.plan.config
        return Kernels(gpu, config.degrees[0].tp, config.degrees[0].sequences(config.micro_batch))

    def predicted_s(self, factors: Factors | None = None) -> float:
        """Step time, as modelled or corrected."""
        calibration = None
        if factors is not None:
            gpu, tp, b = self.kernels
            kinds = corrections(self.instance, self.kernels, factors)
            tables = {kind: {gpu: {tp: {b: factor}}} for kind, factor in kinds.items()}
            calibration = Calibration(source="measured steps", factors=tables)
        corrected = self.instance.but(calibration=calibration)
        return step_time_ns(plan_costs(corrected, self.plan)) / 1e9


def megatron_plan(instance: Instance, fields: Mapping[str, Any]) -> Plan | None:
    """Megatron-LM's plan of these fields of a configuration on the first node group.

    None where its blocks or micro-batches do not divide.
    """
    config = Configuration.model_validate(fields)
    tables = build_tables(instance, config)
    split = equal_blocks(tables)
    each, left_over = divmod(tables.num_micro_batches, config.dp)
    if split is None or left_over or not each:
        return None
    return Decisions((0,) * sum(config.nodes_used), split, (each,) * config.dp).plan(tables)


#: Standard deviations of logarithms: of a measured step; of what a GPU type's kernels are off
#: together; of one kernel shape's own. Those of 780 published steps on A100 (vTrain, MICRO 2024)
#: and our analytic model: 0.02, 0.4, 0.15.
NOISE, COMMON, OWN = 0.02, 0.5, 0.15
#: Of a measured step on several nodes, whose traffic no factor of layers describes.
NETWORK_NOISE = 0.3
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

    @staticmethod
    def of(step: MeasuredStep, at: Factors) -> "Tangent":
        """By small differences."""
        here, blocks, ends = (
            log(step.predicted_s(Factors(at.blocks + moved, at.ends + others)))
            for moved, others in ((0.0, 0.0), (DIFFERENCE, 0.0), (0.0, DIFFERENCE))
        )
        return Tangent(step, at, here, ((blocks - here) / DIFFERENCE, (ends - here) / DIFFERENCE))

    def log_time(self, factors: Factors) -> float:
        """At other factors, linearly."""
        moved = (new - old for new, old in zip(factors, self.at, strict=True))
        return self.log_s + sum(d * slope for d, slope in zip(moved, self.slopes, strict=True))


@dataclass(frozen=True)
class Fit:
    """Factors by kernel shape, those of a GPU type's other shapes, and the steps near them."""

    by_kernels: Mapping[Kernels, Factors]
    common: Mapping[str, Factors]
    tangents: tuple[Tangent, ...] = ()

    def factors(self, kernels: Kernels) -> Factors:
        """Of any shape."""
        return self.by_kernels.get(kernels) or self.common.get(kernels.gpu, NEUTRAL)

    def predicted_s(self, step: MeasuredStep) -> float:
        """A step with these factors."""
        return step.predicted_s(self.factors(step.kernels))

    def expected_error(self, elsewhere: bool = False) -> float | None:
        """Mean |error| of a step that is left out, of shapes with others; None without any.

        elsewhere: where all steps of its shape are left out; None without other shapes.
        """
        errors = []
        for tangent in self.tangents:
            kernels = tangent.step.kernels
            others = [
                two
                for two in self.tangents
                if two is not tangent and not (elsewhere and two.step.kernels == kernels)
            ]
            alike = [two for two in others if two.step.kernels == kernels]
            related = any(two.step.kernels.gpu == kernels.gpu for two in others)
            if related and (elsewhere or alike):
                log_s = tangent.log_time(_most_probable(others).factors(kernels))
                errors.append(abs(exp(log_s) / tangent.step.measured_s - 1))
        return fmean(errors) if errors else None


def _most_probable(tangents: Sequence[Tangent]) -> Fit:
    """Mode of the linearised posterior: ridge regression on [common | own] log factors."""
    gpus = sorted({tangent.step.kernels.gpu for tangent in tangents})
    shapes = sorted({tangent.step.kernels for tangent in tangents})
    column = {key: 2 * i for i, key in enumerate([*gpus, *shapes])}
    size, shared = 2 * len(column), 2 * len(gpus)
    precision: Floats = np.diag([COMMON**-2] * shared + [OWN**-2] * (size - shared))
    right = np.zeros(size)
    for tangent in tangents:
        kernels = tangent.step.kernels
        row = np.zeros(size)
        for start in (column[kernels.gpu], column[kernels]):
            row[start : start + 2] = tangent.slopes
        several = tangent.step.instance.cluster.groups[0].nodes > 1
        noise = NETWORK_NOISE if several else NOISE
        precision += np.outer(row, row) / noise**2
        right += row * (log(tangent.step.measured_s) - tangent.log_time(NEUTRAL)) / noise**2
    x = np.linalg.solve(precision, right)

    def found(*keys: str | Kernels) -> Factors:
        sums = (sum(float(x[column[key] + i]) for key in keys) for i in (0, 1))
        least, most = log(LEAST_FACTOR), log(MOST_FACTOR)
        return Factors(*(min(max(log_factor, least), most) for log_factor in sums))

    by_kernels = {kernels: found(kernels.gpu, kernels) for kernels in shapes}
    return Fit(by_kernels, {gpu: found(gpu) for gpu in gpus}, tuple(tangents))


def fit(steps: Iterable[MeasuredStep]) -> Fit:
    """The most probable factors of steps of models of one width."""
    steps = list(steps)
    last = Fit({}, {})
    for _ in range(MOST_ROUNDS):
        next_fit = _most_probable([Tangent.of(step, last.factors(step.kernels)) for step in steps])
        moved = max(
            abs(new - old)
            for kernels, factors in next_fit.by_kernels.items()
            for new, old in zip(factors, last.factors(kernels), strict=True)
        )
        last = next_fit
        if moved < CLOSE:
            break
    return _kept(last)


def _kept(full: Fit) -> Fit:
    """Per GPU type the fit, its common factors alone, or none: what meets steps left out best.

    Of few steps that scatter by more than NOISE, factors of their own would make others worse. Of
    one step alone nothing can be said, and its factors are kept.
    """
    by_kernels, common = dict(full.by_kernels), dict(full.common)
    for gpu, shared in full.common.items():
        tangents = [each for each in full.tangents if each.step.kernels.gpu == gpu]
        if len(tangents) < 2:
            continue
        errors = np.zeros(3)
        for i, tangent in enumerate(tangents):
            rest, kernels = (
                _most_probable([*tangents[:i], *tangents[i + 1 :]]),
                tangent.step.kernels,
            )
            for j, factors in enumerate((rest.factors(kernels), rest.common[gpu], NEUTRAL)):
                errors[j] += abs(tangent.log_time(factors) - log(tangent.step.measured_s))
        if choice := int(errors.argmin()):
            common[gpu] = shared if choice == 1 else NEUTRAL
            alike = (kernels for kernels in by_kernels if kernels.gpu == gpu)
            by_kernels |= dict.fromkeys(alike, common[gpu])
    return Fit(by_kernels, common, full.tangents)


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
    shares = [
        1 - int(plan_costs(step.instance, step.plan).memory_bytes.max()) / size
        for step, size in measured
        if size is not None
    ]
    return max(0.0, *shares) if shares else None


def curves(texts: Mapping[tuple[str, Kernels], str]) -> Iterator[str]:
    """Lines of layer kind -> GPU -> tp -> micro-batch -> text, in the order of the texts."""
    tree: dict[str, dict[str, dict[int, list[str]]]] = {}
    for (kind, (gpu, tp, b)), text in texts.items():
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
    lines.append("  factors:  # layer kind -> GPU -> tp -> micro-batch -> of the layer's times")
    texts = {
        (kind, kernels): f"{factor:.4f}"
        for kernels, factors in sorted(fit.by_kernels.items())
        for kind, factor in corrections(corrected.instance, kernels, factors).items()
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
    for kernels, factors in sorted(fit.by_kernels.items()):
        number = sum(step.kernels == kernels for step in steps)
        lines.append(
            f"{kernels.gpu}, tensor {kernels.tp}, micro-batch {kernels.micro_batch}: blocks x "
            f"{exp(factors.blocks):.3f}, embedding and head x {exp(factors.ends):.3f} "
            f"({number} step{'s' if number > 1 else ''})"
        )
    if corrected.memory_headroom is not None:
        share = f"{100 * corrected.memory_headroom:.2g} %"
        lines.append(f"memory: measured peaks ask for {share} of head-room")
    return lines
