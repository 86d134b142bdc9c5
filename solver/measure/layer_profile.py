"""A profile of layer times measured on the machine at hand; needs PyTorch."""

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from formulations.errors import InstanceError, PlannerError
from formulations.instance.transformer import Architecture, TransformerSizes
from formulations.instance.workload import FLASH_PRECISIONS, Precision
from solver.measure.timing import LayerMeasurement, measured
from solver.measure.torch_layers import layers

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
        found = "a model that only its own library can build"
        raise InstanceError(where, found, "a model of known sizes; see docs/instances.md, Models")
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


def gpu_name(device: torch.device) -> str | None:
    """What the driver calls the GPU; None for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


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
            layer = build().to(device, _TYPES[wanted.precision])
            for b in wanted.micro_batch:
                try:
                    yield (kind, tp, b), measured(layer, _taken(kind, b, wanted, device))
                except torch.OutOfMemoryError:
                    raise PlannerError(
                        f"{kind} at tensor-parallel degree {tp} does not fit with micro-batches of"
                        f" {b}; leave that size out of --micro-batch"
                    ) from None


def _taken(kind: str, b: int, wanted: Wanted, device: torch.device) -> Tensor:
    """A micro-batch of ids or of the residual stream."""
    shape = (b, wanted.sequence_length)
    if kind == "embedding":
        return torch.randint(wanted.sizes.vocabulary_size, shape, device=device)
    shape_h = (*shape, wanted.sizes.hidden_size)
    dtype = _TYPES[wanted.precision]
    return torch.randn(shape_h, device=device, dtype=dtype, requires_grad=True)


def hardware(device: torch.device) -> str:
    """The device, in words."""
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / MIB
        return f"{torch.cuda.get_device_name(device)}, {memory:.0f} MiB"
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"


def versions(device: torch.device) -> str:
    """Of what decides the times."""
    found = [f"Python {platform.python_version()}", f"PyTorch {torch.__version__}"]
    if device.type == "cuda":
        found += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(found)


def profile_text(
    wanted: Wanted, device: torch.device, gpu: str, found: dict[Key, LayerMeasurement]
) -> str:
    """The profile file."""
    source = f"hetplan profile of {wanted.model}, {wanted.sequence_length} tokens per sequence"
    flash = has_flash(device, wanted.precision)
    times: dict[Key, str] = {}
    peaks: dict[Key, str] = {}
    for key, one in found.items():
        passes = (one.forward_ms, one.backward_ms, one.weight_ms)
        times[key] = "[" + ", ".join(f"{time:.6f}" for time in passes) + "]"
        peaks[key] = f"{one.peak_bytes / MIB:.3f} MiB"
    lines = [
        "# Written by `hetplan profile`. One GPU ran the share 1 / tp of every layer alone, so",
        "# nothing was sent: tensor-parallel traffic is added by the cost model.",
        f"source: {json.dumps(source)}",
        f"hardware: {json.dumps(hardware(device))}",
        f"versions: {json.dumps(versions(device))}",
        f"precision: {wanted.precision}",
        f"hidden_size: {wanted.sizes.hidden_size}",
        f"sequence_length: {wanted.sequence_length}",
        "includes_tensor_parallel_traffic: false",
        "sequence_parallel: false",
        f"flash_attention: {str(flash).lower()}",
        "times_ms:  # by micro-batch: forward, backward, of that for weight gradients",
        *_tree(gpu, times),
        "peak_memory:  # of both passes, beyond parameters and input",
        *_tree(gpu, peaks),
    ]
    return "\n".join(lines) + "\n"


def _tree(gpu: str, values: dict[Key, str]) -> Iterator[str]:
    """Kind -> GPU -> tp -> micro-batch -> value."""
    for kind in dict.fromkeys(kind for kind, _, _ in values):
        yield f"  {kind}:"
        yield f"    {json.dumps(gpu)}:"
        for tp in dict.fromkeys(tp for _, tp, _ in values):
            own = [f"{b}: {text}" for (k, t, b), text in values.items() if (k, t) == (kind, tp)]
            yield f"      {tp}: {{{', '.join(own)}}}"
