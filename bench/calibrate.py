"""Fits the efficiency figures of the GPU catalogue to published times and prints the errors.

    python -m bench calibrate [--worst N]

Once per GPU type, from times of kernels and of layers; times of steps are held out, for they are
what the model predicts. Kernels give the maxima and half-sizes of products and of fused attention,
layers so small that launches bound their time the launch overhead, which is the host's. Types
without kernels of their own take A100's half-sizes in proportion to the 16-bit peak, its latency of
memory-bound kernels and its ratios of attention and of experts to products; types without small
layers the least launch overhead measured, A10's.
H100 and H200 lie between A100 and B200 on the logarithm of the peak, in every figure: assumed.
All others without any source take the median maximum of the measured types: assumed.

The model is `formulations.costs.compute.analytic_s`, called here and nowhere repeated.
Least Huber loss (knee at 10 %) of log(model / published), every source with equal weight, by
Levenberg-Marquardt (Marquardt 1963, doi 10.1137/0111030) on the logarithms of the free figures.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from bench.published_times import Observation, PassTimes, one_node
from bench.read_published import read_all
from bench.records import reference
from formulations.costs.compute import analytic_s
from formulations.instance import GpuType, Layer
from formulations.instance.machines import gpu_catalogue
from formulations.instance.workload import Precision

Floats = NDArray[np.float64]

HUBER_KNEE = 0.1
MOST_STEPS = 60
DIFFERENCE = 1e-4


def pass_times(gpu: GpuType, precision: Precision) -> PassTimes:
    """Seconds of the passes of any layer on this GPU."""
    group = one_node(gpu, 1)

    @cache
    def passes_s(layer: Layer, tp: int, micro_batch: int) -> tuple[float, float]:
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


MAXIMUM, HALF, LAUNCH = "efficiency_maximum", "efficiency_half_flops", "launch_overhead_s"
ATTENTION, ATTENTION_HALF = "attention_maximum", "attention_half_flops"
GROUPED, GROUPED_BANDWIDTH = "grouped_maximum", "grouped_bandwidth"
LATENCY = "memory_latency_s"
FIGURES = (MAXIMUM, HALF, ATTENTION, ATTENTION_HALF, GROUPED, GROUPED_BANDWIDTH, LATENCY, LAUNCH)
#: From where searches begin; launch overhead rather too high, see `fit`.
START = {
    MAXIMUM: 0.6,
    HALF: 4e9,
    ATTENTION: 0.5,
    ATTENTION_HALF: 1e10,
    GROUPED: 0.5,
    GROUPED_BANDWIDTH: 1.0,
    LAUNCH: 2e-4,
}


@dataclass(frozen=True)
class Fit:
    """Which sources decide which figures of a GPU type."""

    gpu: str
    sources: tuple[str, ...]
    free: tuple[str, ...]


PRODUCTS, KERNELS = ("simumax products",), ("simumax attention",)
EXPERTS = ("simumax experts",)
BASE = "A100-80"
#: In order: figures that a type has from an earlier line are its start in a later one.
FITS = (
    Fit(BASE, PRODUCTS, (MAXIMUM, HALF)),
    Fit(BASE, KERNELS, (ATTENTION, ATTENTION_HALF)),
    Fit(BASE, EXPERTS, (GROUPED,)),  # with the bandwidth free, above all of it
    Fit("B200", PRODUCTS, (MAXIMUM, HALF)),
    Fit("B200", KERNELS, (ATTENTION, ATTENTION_HALF)),
    Fit("B200", EXPERTS, (GROUPED, GROUPED_BANDWIDTH)),
    Fit("A10", ("fasop",), (MAXIMUM, LAUNCH)),
    Fit("A100-40", ("fasop",), (LAUNCH,)),
    Fit("V100-16", ("sailor block", "sailor block tp>2"), (MAXIMUM,)),
    Fit("RTX-3090", ("sailor block",), (MAXIMUM,)),
)
#: Of kernels bound by memory, as published beside the products (SimuMax v1.2, system
#: configurations); that memory then reaches its bandwidth is what layers show.
LATENCIES_S = {BASE: 40e-6, "B200": 30e-6}
#: Types that fused attention has no kernels for: before Ampere (Dao 2023, FlashAttention-2).
WITHOUT_FUSED = ("V100-16", "V100-32", "T4")
#: The same chip with other memory, or the same architecture.
TWINS = {
    "A100-40": "A100-80",
    "A800-80": "A100-80",
    "V100-32": "V100-16",
    "GB200": "B200",
    "GB300": "B200",
    "B300": "B200",
}
#: What only steps show (`bench.step_fits`): twins whose maxima are a factor above; maxima.
FASTER = {"GB300": 1.3}
BY_STEPS = {"T4": 0.2}
#: Types between two measured ones.
BETWEEN = ("H100", "H200")

Gpus = dict[str, GpuType]


def fit_all(observations: Sequence[Observation], gpus: Mapping[str, GpuType]) -> Gpus:
    """Every type of the catalogue with its fitted, derived or assumed figures."""
    # A latency of its own, that of its twin, or A100's
    latencies = {name: LATENCIES_S.get(TWINS.get(name, name), LATENCIES_S[BASE]) for name in gpus}
    gpus = {name: gpu.model_copy(update={LATENCY: latencies[name]}) for name, gpu in gpus.items()}
    found: Gpus = {}
    for one in FITS:
        rows = [row for row in observations if row.gpu == one.gpu and row.source in one.sources]
        found[one.gpu] = fit(rows, found.get(one.gpu) or _start(gpus[one.gpu], found), one.free)
    found = {name: _with_attention(gpu, found[BASE]) for name, gpu in found.items()}
    launch_s = {LAUNCH: min(found[one.gpu].launch_overhead_s for one in FITS if LAUNCH in one.free)}
    own = {one.gpu for one in FITS if LAUNCH in one.free}
    found |= {
        name: gpu.model_copy(update=launch_s) for name, gpu in found.items() if name not in own
    }
    maximum = median(gpu.efficiency_maximum for gpu in found.values())
    return {name: found.get(name) or _derived(gpu, found, maximum) for name, gpu in gpus.items()}


def _start(gpu: GpuType, found: Gpus) -> GpuType:
    """Where the search for a type's figures begins, with those that its sources leave open."""
    twin = TWINS.get(gpu.name)
    if twin in found:
        return _as(gpu, found[twin]).model_copy(update={LAUNCH: START[LAUNCH]})
    started = gpu.model_copy(update=START)
    if BASE not in found or gpu.name == "B200":
        return started
    launch_s = found["A10"].launch_overhead_s if "A10" in found else START[LAUNCH]
    return _scaled(started, found[BASE], START[MAXIMUM]).model_copy(update={LAUNCH: launch_s})


def _with_attention(gpu: GpuType, base: GpuType) -> GpuType:
    """Its own figures of attention, or those in the base's ratio to its maximum."""
    if any(one.gpu == gpu.name and ATTENTION in one.free for one in FITS):
        return gpu
    scaled = _scaled(gpu, base, gpu.efficiency_maximum)
    names = (ATTENTION, GROUPED, GROUPED_BANDWIDTH)
    return gpu.model_copy(update={name: getattr(scaled, name) for name in names})


def _as(gpu: GpuType, other: GpuType) -> GpuType:
    return gpu.model_copy(update={name: getattr(other, name) for name in FIGURES})


def _scaled(gpu: GpuType, base: GpuType, maximum: float) -> GpuType:
    """`gpu` with this maximum, the base's half-sizes in proportion to the peak."""
    ratio, attention = gpu.half_peak / base.half_peak, base.attention_maximum
    assert attention is not None  # fitted, as the next
    assert base.grouped_maximum is not None
    share = None if gpu.name in WITHOUT_FUSED else attention / base.efficiency_maximum * maximum
    return gpu.model_copy(
        update={
            MAXIMUM: maximum,
            HALF: base.efficiency_half_flops * ratio,
            ATTENTION: share,
            ATTENTION_HALF: base.attention_half_flops * ratio if share else 0.0,
            GROUPED: min(1.0, base.grouped_maximum / base.efficiency_maximum * maximum),
            GROUPED_BANDWIDTH: base.grouped_bandwidth,
            LAUNCH: base.launch_overhead_s,
        }
    )


def _between(gpu: GpuType, low: GpuType, high: GpuType) -> GpuType:
    """Every figure between those of two types, as the logarithm of the peak lies."""
    way = log(gpu.half_peak / low.half_peak) / log(high.half_peak / low.half_peak)
    figures = {
        name: getattr(low, name) ** (1 - way) * getattr(high, name) ** way for name in FIGURES
    }
    return gpu.model_copy(update=figures)


def _derived(gpu: GpuType, found: Gpus, maximum: float) -> GpuType:
    """Figures of a type that no source holds.

    A10G: FASOP's A10 nodes are AWS g5, whose GPUs are A10G, so its speed is the A10's fitted one.
    """
    if gpu.name in TWINS:
        twin, times = found[TWINS[gpu.name]], FASTER.get(gpu.name, 1.0)
        maxima = {name: times * getattr(twin, name) for name in (MAXIMUM, ATTENTION, GROUPED)}
        return _as(gpu, twin.model_copy(update=maxima))
    if gpu.name in BETWEEN:
        return _between(gpu, found[BASE], found["B200"])
    maximum = BY_STEPS.get(gpu.name, maximum)
    if gpu.name == "A10G":
        reached = found["A10"].efficiency_maximum * found["A10"].half_peak
        maximum = min(1.0, reached / gpu.half_peak)
    return _scaled(gpu, found[BASE], maximum)


def print_figures(gpus: Mapping[str, GpuType]) -> None:
    """Figures per type, as the catalogue's efficiency block has them."""
    for name, gpu in gpus.items():
        fitted = [figure for one in FITS if one.gpu == name for figure in one.free]
        figures = {figure: value for figure in FIGURES if (value := getattr(gpu, figure))}
        texts = [f"{figure}: {value:#.3g}" for figure, value in figures.items()]
        print(f"{name}: {{{', '.join(texts)}}}  # fitted: {', '.join(fitted) or 'nothing'}")


def print_errors(observations: Sequence[Observation], errors: Floats) -> None:
    """Errors per GPU type and source, and whether the source was fitted or held out."""
    fitted = {(one.gpu, source) for one in FITS for source in one.sources}
    keys = list(dict.fromkeys((one.gpu, one.source) for one in observations))
    for gpu, source in keys:
        mine = errors[[(one.gpu, one.source) == (gpu, source) for one in observations]]
        print(
            f"{gpu:10} {source:20} {'fitted' if (gpu, source) in fitted else 'held out':8}"
            f" {len(mine):4} rows  bias {np.median(mine):+6.1%}"
            f"  median {np.median(np.abs(mine)):6.1%}"
            f"  90th percentile {np.percentile(np.abs(mine), 90):6.1%}"
        )


def print_worst(observations: Sequence[Observation], errors: Floats, count: int) -> None:
    """The observations of largest error."""
    for i in np.argsort(-np.abs(errors))[:count]:
        one = observations[i]
        print(f"{errors[i]:+6.0%}  {one.published_s:9.4f} s  {one.gpu} {one.source} {one.label}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="fit the GPU catalogue's efficiency figures")
    parser.add_argument("--worst", type=int, default=0, help="show the N largest errors")
    options = parser.parse_args()
    catalogue = gpu_catalogue()
    folder = reference(
        "measured/*.csv", "megatron/*.json", "fasop/*.json", "sailor/**/*.json", "simumax/*.json"
    )
    observations = read_all(folder, catalogue)
    gpus = fit_all(observations, catalogue)
    errors = np.expm1(log_errors(observations, gpus))
    print_figures(gpus)
    print_errors(observations, errors)
    print_worst(observations, errors, options.worst)
