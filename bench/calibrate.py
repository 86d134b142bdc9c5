"""Fits the efficiency figures of the GPU catalogue to published times and prints the errors.

    python -m bench.calibrate [--worst N]

Once per GPU type, never per row. Identifiable are the maximum, from large layers; the ramp of a
kernel, half / (peak * maximum), from layers of many sizes; and the launch overhead, from layers so
small that launches bound their time. Where a type's sources lack such rows it takes the A100's
half-size in proportion to the 16-bit peak, and the A100's launch overhead. Types without any
source take, besides, the median maximum of the fitted ones: "assumed" in the catalogue.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from bench.fitting import BASE_PRECISION, Floats, fit, log_errors
from bench.published_times import Observation
from bench.read_published import read_all
from bench.records import reference
from formulations.instance import GpuType
from formulations.instance.load import gpu_catalogue

MAXIMUM, HALF, LAUNCH = "efficiency_maximum", "efficiency_half_flops", "launch_overhead_s"
START = {MAXIMUM: 0.7, HALF: 4e9, LAUNCH: 2e-4}


@dataclass(frozen=True)
class Fit:
    """Which sources decide which figures of a GPU type."""

    gpu: str
    sources: tuple[str, ...]
    free: tuple[str, ...]


BASE = Fit("A100-80", ("vtrain single-node", "vtrain multi-node"), (MAXIMUM, HALF, LAUNCH))
FITS = (
    BASE,
    Fit("A10", ("fasop",), (MAXIMUM, LAUNCH)),
    Fit("V100-16", ("sailor block", "sailor block tp>2"), (MAXIMUM,)),
    Fit("RTX-3090", ("sailor block",), (MAXIMUM,)),
)
#: The same chip with other memory.
TWINS = {"A100-40": "A100-80", "V100-32": "V100-16"}


def fit_all(observations: Sequence[Observation], gpus: Mapping[str, GpuType]) -> dict[str, GpuType]:
    """Every type of the catalogue with its fitted, derived or assumed figures."""
    base = fit(_rows(observations, BASE), gpus[BASE.gpu].model_copy(update=START), BASE.free)
    found = {BASE.gpu: base}
    for one in FITS[1:]:
        start = _scaled(gpus[one.gpu], base, START[MAXIMUM])
        found[one.gpu] = fit(_rows(observations, one), start, one.free)
    maximum = median(gpu.efficiency_maximum for gpu in found.values())
    return {
        name: found.get(name) or _derived(gpu, base, found, maximum) for name, gpu in gpus.items()
    }


def _rows(observations: Sequence[Observation], one: Fit) -> list[Observation]:
    return [row for row in observations if row.gpu == one.gpu and row.source in one.sources]


def _scaled(gpu: GpuType, base: GpuType, maximum: float) -> GpuType:
    """`gpu` with the base's launch overhead, and its half-size in proportion to the peak."""
    ratio = gpu.peak_flops[BASE_PRECISION] / base.peak_flops[BASE_PRECISION]
    half_flops, launch_s = base.efficiency_half_flops * ratio, base.launch_overhead_s
    return gpu.model_copy(update={MAXIMUM: maximum, HALF: half_flops, LAUNCH: launch_s})


def _derived(gpu: GpuType, base: GpuType, found: Mapping[str, GpuType], maximum: float) -> GpuType:
    """Figures of a type that no source holds.

    A10G: FASOP's A10 nodes are AWS g5, whose GPUs are A10G, so its speed is the A10's fitted one.
    """
    if gpu.name == "A10G":
        a10 = found["A10"]
        reached = a10.efficiency_maximum * a10.peak_flops[BASE_PRECISION]
        share = min(1.0, reached / gpu.peak_flops[BASE_PRECISION])
        launch_s = a10.launch_overhead_s
        return _scaled(gpu, base, share).model_copy(update={LAUNCH: launch_s})
    if gpu.name in TWINS:
        return _scaled(gpu, base, found[TWINS[gpu.name]].efficiency_maximum)
    return _scaled(gpu, base, maximum)


def print_figures(gpus: Mapping[str, GpuType]) -> None:
    """Figures per type, as the catalogue's efficiency block has them."""
    fitted = {one.gpu: one.free for one in FITS}
    for name, gpu in gpus.items():
        print(
            f"{name}: {{efficiency_maximum: {gpu.efficiency_maximum:.3f},"
            f" efficiency_half_flops: {gpu.efficiency_half_flops:.2e},"
            f" launch_overhead_s: {gpu.launch_overhead_s * 1e6:.1f}e-6}}"
            f"  # fitted: {', '.join(fitted.get(name, ())) or 'nothing'}"
        )


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
    folder = reference("measured/*.csv", "megatron/*.json", "fasop/*.json", "sailor/**/*.json")
    observations = read_all(folder, catalogue)
    gpus = fit_all(observations, catalogue)
    errors = np.expm1(log_errors(observations, gpus))
    print_figures(gpus)
    print_errors(observations, errors)
    print_worst(observations, errors, options.worst)


if __name__ == "__main__":
    main()
