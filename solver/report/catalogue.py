"""What hetplan knows by name: GPUs and workloads, with the source of every figure."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType

from formulations.instance import GpuType, Workload
from formulations.instance.workload import PRECISIONS
from formulations.units import GIB
from solver.report.layout import labelled, table
from solver.report.quantities import significant


def gpu_report(gpus: Mapping[str, GpuType]) -> list[RenderableType]:
    """Peaks per precision, memory, memory bandwidth and link of every GPU, then the sources."""
    rows = [
        (
            name,
            f"{gpu.memory_bytes / GIB:.4g} GiB",
            f"{gpu.memory_bandwidth_bytes_per_s / 1e9:,.0f} GB/s",
            f"{gpu.link.bandwidth_bytes_per_s / 1e9:,.5g} GB/s",
            *(_tflops(gpu.peak_flops.get(precision)) for precision in PRECISIONS),
        )
        for name, gpu in gpus.items()
    ]
    numbers = ("memory", "bandwidth", "link", *PRECISIONS)
    return [
        "GPUs: memory, its bandwidth, one direction of the link inside a node; peaks in TFLOP/s",
        "",
        table(("name",), numbers, rows),
        "",
        labelled([(name, _sources(gpu)) for name, gpu in gpus.items()]),
    ]


def _sources(gpu: GpuType) -> str:
    efficiency = "measured" if gpu.measured_in else "assumed"
    if gpu.assumed_efficiency:
        efficiency += f" ({', '.join(gpu.assumed_efficiency)} assumed)"
    odd = ", ".join(f"{name} {why}" for name, why in gpu.assumed_peaks.items())
    source = f"{gpu.source}; peaks assumed: {odd}" if odd else gpu.source
    return (
        f"peaks and bandwidths {gpu.kind}: {source}; memory {gpu.memory_kind}:"
        f" {gpu.memory_source}; efficiency {efficiency}: {gpu.efficiency_source}"
    )


def _tflops(peak: float | None) -> str:
    return "-" if peak is None else f"{peak / 1e12:g}"


def workload_list(workloads: Sequence[Workload]) -> list[RenderableType]:
    """Size and usual training settings of every workload, then the sources."""
    rows = [
        (
            workload.name,
            f"{significant(workload.parameters / 1e6)} million",
            f"{len(workload.layers) - 2}",
            f"{workload.hidden_size:,}",
            f"{workload.sequence_length:,} tokens",
            f"{workload.global_batch:,} sequences",
        )
        for workload in workloads
    ]
    numbers = ("parameters", "blocks", "hidden size", "sequence", "global batch")
    return [
        "workloads",
        "",
        table(("name",), numbers, rows),
        "",
        labelled([(workload.name, workload.source) for workload in workloads]),
    ]


def gpu_json(gpus: Mapping[str, GpuType]) -> dict[str, object]:
    """The same figures as data, in base units named by the fields."""
    return {name: gpu.model_dump(mode="json") for name, gpu in gpus.items()}
