"""What hetplan knows by name: GPUs and workloads, with the source of every figure."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group

from formulations.instance import GpuType, Layer, Workload
from formulations.instance.machines import gpu_catalogue
from formulations.instance.resolve_workload import workload_catalogue
from formulations.instance.workload import PRECISIONS, Precision
from formulations.units import GIB
from solver.files import fields_of
from solver.report.layout import Labelled, Parts, table_of
from solver.report.naming import layers_text
from solver.report.quantities import significant, size_text, size_unit, work_text, work_unit


def _state_bytes(workload: Workload, parameters: int) -> int:
    each = workload.parameter_bytes + workload.gradient_bytes
    return each * parameters + workload.state_bytes(parameters)


def trained_parameters(workload: Workload) -> int:
    """With those that training adds to the published model, in the head."""
    return sum(run.layer.parameters * run.count for run in workload.layer_runs)


def workload_json(workload: Workload) -> dict[str, object]:
    """Figures per workload and per layer; units in the names."""
    return {
        **fields_of(workload, "name", "source", "parameters"),
        "trained_parameters": trained_parameters(workload),
        **fields_of(workload, "sequence_length", "global_batch"),
        "forward_flops_per_sequence": workload.forward_flops,
        "training_flops_per_sequence": workload.training_flops,
        "boundary_bytes_per_sequence": workload.boundary_bytes,
        "layers": [
            {
                "kind": run.layer.kind,
                "count": run.count,
                "parameters": run.layer.parameters,
                "parameter_bytes": run.layer.parameters * workload.parameter_bytes,
                "training_state_bytes": _state_bytes(workload, run.layer.parameters),
                "forward_flops_per_sequence": run.layer.forward_flops,
                "activation_bytes_per_sequence": run.layer.activation_bytes(1),
                "recompute_activation_bytes_per_sequence": run.layer.input_bytes,
                "output_tensors": run.layer.output_tensors,
            }
            for run in workload.layer_runs
        ],
    }


def workload_report(workload: Workload) -> Parts:
    """The same figures for people; bytes for one GPU, before any split."""
    tokens, batch, flops = workload.sequence_length, workload.global_batch, workload.training_flops
    places: dict[Layer, list[int]] = {}  # where in the chain distinct layers stand
    for number, layer in enumerate(workload.layers):
        places.setdefault(layer, []).append(number)

    def place(layer: Layer) -> str:
        """Names of layers: "3-60", or "12 of 0-22" where others stand between them."""
        first, last = places[layer][0], places[layer][-1]
        between = f"{len(places[layer])} of " * (last - first >= len(places[layer]))
        return between + layers_text(workload, range(first, last + 1) if between else places[layer])

    largest = max(layer.parameters for layer in places)
    weights = size_unit(largest * workload.parameter_bytes)
    state = size_unit(_state_bytes(workload, largest))
    kept = size_unit(max(layer.activation_bytes(1) for layer in places))
    work = work_unit(max(layer.forward_flops for layer in places))
    layers = table_of(
        places,
        {"layers": place, "kind": lambda layer: layer.kind},
        {
            "parameters": lambda layer: f"{layer.parameters:,}",
            "weights": lambda layer: weights.text(layer.parameters * workload.parameter_bytes),
            "training state": lambda layer: state.text(_state_bytes(workload, layer.parameters)),
            "activations": lambda layer: kept.text(layer.activation_bytes(1)),
            "forward": lambda layer: work.text(layer.forward_flops),
        },
    )
    parameters = f"{workload.parameters:,} ({significant(workload.parameters / 1e6)} million)"
    if added := trained_parameters(workload) - workload.parameters:
        parameters += f", and {added:,} that training adds to the head"
    message = size_text(workload.boundary_bytes)
    if workload.largest_message_bytes > workload.boundary_bytes:
        message += f", behind some layers {size_text(workload.largest_message_bytes)},"
    lines = [
        ("workload", f"{workload.name} ({workload.source})"),
        ("parameters", parameters),
        ("step", f"{batch:,} sequences of {tokens:,} tokens, {workload.precision}"),
        (
            "FLOPs",
            f"{work_text(workload.forward_flops)} forward and "
            f"{work_text(flops)} forward and backward per sequence, "
            f"{work_text(flops * batch)} per step",
        ),
        ("transfers", f"{message} per sequence from stage to stage, either way"),
    ]
    note = Group(
        "per layer of one kind; training state: weights, gradients and optimizer; activations kept",
        "for the backward pass, and FLOPs of the forward pass: per sequence",
    )
    return [Labelled(lines), note, layers]


def catalogued() -> tuple[Mapping[str, GpuType], list[Workload]]:
    """Every GPU that instances may name, and every workload."""
    return gpu_catalogue(), [entry.workload(name) for name, entry in workload_catalogue().items()]


def catalogue_json(gpus: Mapping[str, GpuType], workloads: Sequence[Workload]) -> dict[str, object]:
    """Figures of every GPU and workload."""
    return {
        "gpus": {name: gpu.model_dump(mode="json") for name, gpu in gpus.items()},
        "workloads": [*map(workload_json, workloads)],
    }


def catalogue_report(gpus: Mapping[str, GpuType], workloads: Sequence[Workload]) -> Parts:
    """The same for people, each with the sources below."""

    def peak(precision: Precision) -> Callable[[str], str]:
        peaks = {name: gpu.peak_flops.get(precision) for name, gpu in gpus.items()}
        return lambda name: "-" if (peak := peaks[name]) is None else f"{peak / 1e12:g}"

    def sources(gpu: GpuType) -> str:
        efficiency = "measured" if gpu.measured_in else "assumed"
        if gpu.assumed_efficiency:
            efficiency += f" ({', '.join(gpu.assumed_efficiency)} assumed)"
        odd = ", ".join(f"{name} {why}" for name, why in gpu.assumed_peaks.items())
        source = f"{gpu.source}; peaks assumed: {odd}" if odd else gpu.source
        return (
            f"peaks and bandwidths {gpu.kind}: {source}; memory {gpu.memory_kind}:"
            f" {gpu.memory_source}; efficiency {efficiency}: {gpu.efficiency_source}"
        )

    figures = table_of(
        gpus,
        {"name": lambda name: name},
        {
            "memory": lambda name: f"{gpus[name].memory_bytes / GIB:.4g} GiB",
            "bandwidth": lambda name: f"{gpus[name].memory_bandwidth_bytes_per_s / 1e9:,.0f} GB/s",
            "link": lambda name: (
                f"{gpus[name].link.bandwidth_bytes_per_s / 1e9:,.5g} GB/s"
                + ", shared" * gpus[name].link.shared
            ),
            **{precision: peak(precision) for precision in PRECISIONS},
        },
    )
    note = "GPUs: memory, its bandwidth, one direction of the link inside a node; peaks in TFLOP/s"
    gpu_sources = Labelled([(name, sources(gpu)) for name, gpu in gpus.items()])
    settings = table_of(
        workloads,
        {"name": lambda workload: workload.name},
        {
            "parameters": lambda workload: f"{significant(workload.parameters / 1e6)} million",
            "blocks": lambda workload: f"{len(workload.layers) - 2}",
            "hidden size": lambda workload: f"{workload.hidden_size:,}",
            "sequence": lambda workload: f"{workload.sequence_length:,} tokens",
            "global batch": lambda workload: f"{workload.global_batch:,} sequences",
        },
    )
    workload_sources = Labelled([(workload.name, workload.source) for workload in workloads])
    return [note, figures, gpu_sources, "workloads", settings, workload_sources]
