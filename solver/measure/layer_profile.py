"""A profile of layer times and memory measured on the machine at hand; needs PyTorch.

Passes are started one after the other and waited for together, as in training, where the host
runs ahead of the device; the median of several such runs counts. Weight gradients: what the whole
backward pass takes longer than the gradients of inputs alone.
"""

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from formulations.errors import InstanceError, PlannerError
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import Architecture
from formulations.instance.workload import FLASH_PRECISIONS, Precision
from solver.files import beside
from solver.measure.calibration import Kernels
from solver.measure.corrected import curves
from solver.measure.torch_layers import layers

RUNS, LEAST_RUN_S, MOST_PASSES = 3, 0.05, 50
LEAST_MS = 1e-6


@dataclass(frozen=True)
class LayerMeasurement:
    """Milliseconds per micro-batch, of the backward pass those for weight gradients; bytes.

    peak_bytes: beyond the layer's parameters and its input.
    """

    forward_ms: float
    backward_ms: float
    weight_ms: float
    peak_bytes: int


def measured(layer: nn.Module, taken: Tensor) -> LayerMeasurement:
    """One layer on one input; both lie on the device. Ids have no gradient."""
    parameters = list(layer.parameters())
    inputs = [taken] if taken.requires_grad else []
    out = layer(taken)
    given = torch.ones_like(out)

    def backward(*wanted: Tensor) -> None:
        torch.autograd.grad(out, wanted, given, retain_graph=True, allow_unused=True)

    forward_ms = _median_ms(lambda: layer(taken))
    backward_ms = _median_ms(lambda: backward(*inputs, *parameters))
    inputs_ms = _median_ms(lambda: backward(*inputs)) if inputs else 0.0
    weight_ms = min(max(backward_ms - inputs_ms, LEAST_MS), backward_ms)
    return LayerMeasurement(forward_ms, backward_ms, weight_ms, _peak_bytes(layer, taken))


def _median_ms(run: Callable[[], object]) -> float:
    """Milliseconds of one pass; PyTorch's timer waits for devices, and does two before it counts.

    Those build and choose kernels.
    """
    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    first_s = timer.timeit(1).mean
    passes = min(max(round(LEAST_RUN_S / max(first_s, 1e-9)), 1), MOST_PASSES)
    runs_s: list[float] = [timer.timeit(passes).mean for _ in range(RUNS)]
    return 1e3 * median(runs_s)


def _peak_bytes(layer: nn.Module, taken: Tensor) -> int:
    """Most that both passes allocate."""
    wanted = [*([taken] if taken.requires_grad else []), *layer.parameters()]

    def both() -> None:
        out = layer(taken)
        torch.autograd.grad(out, wanted, torch.ones_like(out), allow_unused=True)

    if taken.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(taken.device)
        before = torch.cuda.memory_allocated(taken.device)
        both()
        return int(torch.cuda.max_memory_allocated(taken.device) - before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        both()
    allocated = peak = 0
    for event in sorted(seen.events(), key=lambda event: event.time_range.start):
        allocated += event.self_cpu_memory_usage
        peak = max(peak, allocated)
    return peak


_TYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
MIB = 1 << 20
Key = tuple[str, int, int]  #: layer kind, tp, micro-batch


@dataclass(frozen=True)
class Wanted:
    """What to measure."""

    model: str
    sizes: TransformerSizes
    sequence_length: int
    precision: Precision
    tensor_parallel: Sequence[int]
    micro_batch: Sequence[int]


def buildable(architecture: Architecture, where: str) -> TransformerSizes:
    """The sizes. Raises InstanceError for a part that is not built here, by its name."""
    if not isinstance(architecture, TransformerSizes):
        wrong = "a model that only its own library can build"
        raise InstanceError(where, wrong, "a model of known sizes; see docs/instances.md, Models")
    parts = {
        "a mixture of experts": architecture.moe,
        "latent attention": architecture.latent_attention,
        "an encoder-decoder": architecture.decoder_layers,
        "a sliding window": architecture.window,
        "attention sinks": architecture.attention_sinks,
        "relative positions": architecture.relative_position_buckets,
        "multi-token prediction": architecture.mtp_layers,
    }
    for name, part in parts.items():
        if part:
            allowed = "a model without, or times measured otherwise in a profile file"
            raise InstanceError(where, f"{name}, which is not measured yet", allowed)
    return architecture


def device_of(name: str | None) -> torch.device:
    """The device of that kind, or the fastest; PlannerError where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise PlannerError("--device cuda: PyTorch sees no GPU here; --device cpu measures the CPU")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def usual_precision(device: torch.device) -> Precision:
    """In which this device is used to train."""
    if device.type == "cpu":
        return "fp32"
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"


def has_flash(device: torch.device, precision: Precision) -> bool:
    """Whether PyTorch's fused attention runs there, on Ampere and later."""
    fused = precision in FLASH_PRECISIONS and device.type == "cuda"
    return fused and torch.cuda.get_device_capability(device) >= (8, 0)


def measure(wanted: Wanted, device: torch.device) -> Iterator[tuple[Key, LayerMeasurement]]:
    """Every layer kind at every degree and micro-batch size, as they are done.

    Raises PlannerError where the memory of the device is too small.
    """
    torch.backends.cuda.matmul.allow_tf32 = wanted.precision == "tf32"
    flash = has_flash(device, wanted.precision)
    for tp in wanted.tensor_parallel:
        for kind, build in layers(wanted.sizes, tp, flash).items():
            dtype = _TYPES[wanted.precision]
            layer = build().to(device, dtype)
            for b in wanted.micro_batch:
                rows = (b, wanted.sequence_length)
                try:
                    if kind == "embedding":  # of ids, others of the residual stream
                        taken = torch.randint(wanted.sizes.vocabulary_size, rows, device=device)
                    else:
                        shape = (*rows, wanted.sizes.hidden_size)
                        taken = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
                    yield (kind, tp, b), measured(layer, taken)
                except torch.OutOfMemoryError:
                    raise PlannerError(
                        f"{kind} at tensor-parallel degree {tp} does not fit with micro-batches of"
                        f" {b}; leave that size out of --micro-batch"
                    ) from None


def profile_text(
    wanted: Wanted, device: torch.device, gpu: str, measurements: dict[Key, LayerMeasurement]
) -> str:
    """The profile file."""
    times, peaks = dict[tuple[str, Kernels], str](), dict[tuple[str, Kernels], str]()
    for (kind, tp, b), measurement in measurements.items():
        key = kind, Kernels(gpu, tp, b)
        passes = (measurement.forward_ms, measurement.backward_ms, measurement.weight_ms)
        times[key] = "[" + ", ".join(f"{time:.6f}" for time in passes) + "]"
        peaks[key] = f"{measurement.peak_bytes / MIB:.3f} MiB"
    source = f"hetplan profile of {wanted.model}, {wanted.sequence_length} tokens per sequence"
    hardware = f"CPU {platform.machine()}, {torch.get_num_threads()} threads"
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}"
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / MIB
        hardware = f"{torch.cuda.get_device_name(device)}, {memory:.0f} MiB"
        versions += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return beside("solver.measure", "profile.yaml.txt").format(
        wanted=wanted,
        source=json.dumps(source),
        hardware=json.dumps(hardware),
        versions=json.dumps(versions),
        flash=str(has_flash(device, wanted.precision)).lower(),
        times="\n".join(curves(times)),
        peaks="\n".join(curves(peaks)),
    )
