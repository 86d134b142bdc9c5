"""What hetplan knows by name: GPUs and workloads, with the source of every figure."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType

from formulations.instance import GpuType, Layer, Workload
from formulations.instance.workload import PRECISIONS
from formulations.units import GIB
from solver.report.layout import labelled, table
from solver.report.naming import layers_text
from solver.report.quantities import decimal_text, decimal_unit, significant, size_text, size_unit


def _state_bytes(workload: Workload, parameters: int) -> int:
    """Parameters, gradients and optimizer state."""
    each = workload.parameter_bytes + workload.gradient_bytes
    return each * parameters + workload.state_bytes(parameters)


def _runs(workload: Workload) -> Iterator[tuple[range, Layer]]:
    start = 0
    for run in workload.layer_runs:
        yield range(start, start + run.count), run.layer
        start += run.count


def _places(workload: Workload) -> dict[Layer, list[int]]:
    """Distinct layers, and where in the chain they stand."""
    places: dict[Layer, list[int]] = {}
    for layers, layer in _runs(workload):
        places.setdefault(layer, []).extend(layers)
    return places


def _place_text(workload: Workload, layers: list[int]) -> str:
    """Names of layers: "3-60", or "12 of 0-22" where others stand between them."""
    first, last = layers[0], layers[-1]
    if last - first < len(layers):
        return layers_text(workload, layers)
    return f"{len(layers)} of {layers_text(workload, range(first, last + 1))}"


def trained_parameters(workload: Workload) -> int:
    """With those that training adds to the published model, in the head."""
    return sum(run.layer.parameters * run.count for run in workload.layer_runs)


def workload_json(workload: Workload) -> dict[str, object]:
    """Figures per workload and per layer; units in the names."""
    return {
        "name": workload.name,
        "source": workload.source,
        "parameters": workload.parameters,
        "trained_parameters": trained_parameters(workload),
        "sequence_length": workload.sequence_length,
        "global_batch": workload.global_batch,
        "forward_flops_per_sequence": workload.forward_flops,
        "training_flops_per_sequence": workload.training_flops,
        "boundary_bytes_per_sequence": workload.boundary_bytes,
        "layers": [
            {
                "kind": layer.kind,
                "count": len(layers),
                "parameters": layer.parameters,
                "parameter_bytes": layer.parameters * workload.parameter_bytes,
                "training_state_bytes": _state_bytes(workload, layer.parameters),
                "forward_flops_per_sequence": layer.forward_flops,
                "activation_bytes_per_sequence": layer.activation_bytes(1),
                "recompute_activation_bytes_per_sequence": layer.input_bytes,
                "output_tensors": layer.output_tensors,
            }
            for layers, layer in _runs(workload)
        ],
    }


def _message_text(workload: Workload) -> str:
    smallest, largest = workload.boundary_bytes, workload.largest_message_bytes
    more = f", behind some layers {size_text(largest)}," if largest > smallest else ""
    return f"{size_text(smallest)}{more}"


def workload_report(workload: Workload) -> list[RenderableType]:
    """The same figures for people; bytes for one GPU, before any split."""
    tokens, batch = workload.sequence_length, workload.global_batch
    kinds = list(_places(workload))
    largest = max(layer.parameters for layer in kinds)
    weights = size_unit(largest * workload.parameter_bytes)
    state = size_unit(_state_bytes(workload, largest))
    kept = size_unit(max(layer.activation_bytes(1) for layer in kinds))
    work = decimal_unit(max(layer.forward_flops for layer in kinds), "FLOP")
    rows = [
        (
            _place_text(workload, layers),
            layer.kind,
            f"{layer.parameters:,}",
            weights.text(layer.parameters * workload.parameter_bytes),
            state.text(_state_bytes(workload, layer.parameters)),
            kept.text(layer.activation_bytes(1)),
            work.text(layer.forward_flops),
        )
        for layer, layers in _places(workload).items()
    ]
    flops = workload.forward_flops
    added = trained_parameters(workload) - workload.parameters
    in_training = f", and {added:,} that training adds to the head" if added else ""
    lines = [
        ("workload", f"{workload.name} ({workload.source})"),
        (
            "parameters",
            f"{workload.parameters:,} ({significant(workload.parameters / 1e6)} million)"
            + in_training,
        ),
        ("step", f"{batch:,} sequences of {tokens:,} tokens, {workload.precision}"),
        (
            "FLOPs",
            f"{decimal_text(flops, 'FLOP')} forward and "
            f"{decimal_text(workload.training_flops, 'FLOP')} forward and backward per sequence, "
            f"{decimal_text(workload.training_flops * batch, 'FLOP')} per step",
        ),
        (
            "transfers",
            f"{_message_text(workload)} per sequence from stage to stage, either way",
        ),
    ]
    numbers = ("parameters", "weights", "training state", "activations", "forward")
    return [
        labelled(lines),
        "",
        "per layer of one kind; training state: weights, gradients and optimizer; activations kept",
        "for the backward pass, and FLOPs of the forward pass: per sequence",
        "",
        table(("layers", "kind"), numbers, rows),
    ]


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
