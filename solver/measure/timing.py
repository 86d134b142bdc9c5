"""Time and memory of one layer's passes in PyTorch, on the device at hand.

Passes are started one after the other and waited for together, as in training, where the host
runs ahead of the device; the median of several such runs counts. Weight gradients: what the whole
backward pass takes longer than the gradients of inputs alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

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

    forward_ms = _median_ms(lambda: layer(taken), taken.device)
    backward_ms = _median_ms(lambda: backward(*inputs, *parameters), taken.device)
    inputs_ms = _median_ms(lambda: backward(*inputs), taken.device) if inputs else 0.0
    weight_ms = min(max(backward_ms - inputs_ms, LEAST_MS), backward_ms)
    return LayerMeasurement(forward_ms, backward_ms, weight_ms, _peak_bytes(layer, taken))


def _median_ms(run: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one pass; the first ones, which build and choose kernels, do not count."""
    first_s = min(_seconds(run, 1, device) for _ in range(2))
    passes = min(max(round(LEAST_RUN_S / max(first_s, 1e-9)), 1), MOST_PASSES)
    return 1e3 * median(_seconds(run, passes, device) for _ in range(RUNS)) / passes


def _seconds(run: Callable[[], object], passes: int, device: torch.device) -> float:
    _wait(device)
    start = perf_counter()
    for _ in range(passes):
        run()
    _wait(device)
    return perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
    held = peak = 0
    for event in sorted(seen.events(), key=lambda one: one.time_range.start):
        held += event.self_cpu_memory_usage
        peak = max(peak, held)
    return peak
