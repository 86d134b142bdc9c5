"""Layer times from docs/cost.md: products, memory, launches, attention, experts; no traffic.

A layer's FLOPs, kernels and bytes are data here; `layers` counts FLOPs and parameters again.
"""

from dataclasses import dataclass
from math import ceil

from formulations.instance import Layer
from formulations.plan import Degrees
from tests.oracles.places import Places

#: Rate of fused attention backward over forward.
ATTENTION_RATE = 0.85


#: Of a layer: forward, backward, of that weight gradients; the attention core forward.
Seconds = tuple[float, float, float, float]


def layer_of(at: Places, x: int) -> Layer:
    return at.instance.on(at.plan.config.nodes_used).workload.layers[x]


def kept_bytes(at: Places, layer: Layer, tp: int, released: bool = False) -> int:
    """Bytes per sequence that a GPU keeps for the backward pass; or what weight gradients need.

    Sequence parallelism splits over tp all but `unsplit`: copies of tokens on their way to experts
    that a tensor group splits.
    """
    replicated, sharded = layer.replicated_activation_bytes, layer.sharded_activation_bytes
    if released:
        replicated -= layer.released_replicated_bytes
        sharded -= layer.released_sharded_bytes
    copies = 2 * layer.routed_bytes if at.plan.config.etp == 1 else 0
    unsplit = max(0, layer.unsplit_bytes - copies)
    on_all = unsplit if at.splits(tp) else replicated
    return on_all + ceil((sharded + replicated - on_all) / tp)


@dataclass(frozen=True)
class Compute:
    """Layer times of one plan on a node group, by the analytic model."""

    at: Places

    def of(self, x: int, j: int, slot: Degrees) -> Seconds:
        layer, sequences = layer_of(self.at, x), self.at.sequences(slot) / slot.cp
        forward, backward = self._passes(layer, j, slot.tp, sequences)
        products, core = layer.forward_flops, 0.0
        share = (products - layer.unweighted_flops) / (2 * products) if products else 0.0
        if layer.core_kernels:
            core = self._core_s(layer, j, slot.tp, sequences)
        return forward, backward, share * backward, core

    def _peaks(self, j: int) -> tuple[float, float]:
        """Of products of blocks, and of all else: with fp8 in 16 bit."""
        precision, peaks = self.at.instance.workload.precision, self.at.nodes_like(j).gpu.peak_flops
        return peaks[precision], peaks["bf16" if precision == "fp8" else precision]

    def _passes(self, layer: Layer, j: int, tp: int, b: float) -> tuple[float, float]:
        """Forward = max(device, host), backward twice that but for attention and experts."""
        gpu, fused = self.at.nodes_like(j).gpu, 0.0
        peak, outside = self._peaks(j)
        peak = peak if layer.is_block else outside
        attention = 0.0
        if layer.attention_flops and not layer.core_kernels:
            fused = gpu.attention_maximum or 0.0
        if fused:
            attention = layer.attention_flops * b / (tp * outside * fused)
            attention += gpu.attention_half_flops / (gpu.peak_flops["bf16"] * fused)
        flops = layer.forward_flops - layer.expert_flops
        flops -= layer.unweighted_flops if fused else 0
        in_memory = 0 if gpu.memory_latency_s is None else layer.memory_kernels  # M
        ramping = layer.kernels - in_memory if layer.forward_flops else 0  # P
        copies = 2 * layer.routed_bytes * (self.at.plan.config.etp or tp) // tp
        kept = kept_bytes(self.at, layer, tp) - copies
        ramp = gpu.efficiency_half_flops / (gpu.peak_flops["bf16"] * gpu.efficiency_maximum)
        device = (
            flops * b / (tp * peak * gpu.efficiency_maximum)
            + ramping * ramp
            + 2.5 * b * kept / gpu.memory_bandwidth_bytes_per_s
            + in_memory * (gpu.memory_latency_s or 0.0)
        )
        host = layer.kernels * gpu.launch_overhead_s
        experts = self._experts(layer, j, tp, b) if layer.expert_flops else (0.0, 0.0)
        forward = device + attention + experts[0]
        backward = 2 * device + 2 * attention / ATTENTION_RATE + experts[1]
        return max(forward, host), max(backward, 2 * host)

    def _experts(self, layer: Layer, j: int, tp: int, b: float) -> tuple[float, float]:
        """Grouped products, weights read and gradients added up, tokens put in order and back."""
        gpu, workload = self.at.nodes_like(j).gpu, self.at.instance.workload
        config, peaks = self.at.plan.config, self._peaks(j)
        peak, lanes = peaks[0] if layer.is_block else peaks[1], config.etp or tp
        maximum = gpu.grouped_maximum or gpu.efficiency_maximum
        products = layer.expert_flops * b / (tp * peak * maximum)
        resident = ceil(layer.expert_parameters / (lanes * config.ep))
        read = resident / (gpu.memory_bandwidth_bytes_per_s * gpu.grouped_bandwidth)
        copied = (6 if config.ep > 1 else 2) * layer.routed_bytes + 2 * layer.input_bytes
        rate = gpu.memory_bandwidth_bytes_per_s * gpu.permute_bandwidth
        order = copied * b * lanes / tp / rate
        w, g = workload.parameter_bytes, workload.gradient_bytes
        w = 1 if workload.precision == "fp8" else w  # the copy that products read
        return products + w * read + order, 2 * products + (w + 2 * g) * read + order

    def _core_s(self, layer: Layer, j: int, tp: int, b: float) -> float:
        """From the scores to the weighted sum, without fused attention: what selective repeats."""
        core = layer.model_copy(
            update={
                "forward_flops": layer.unweighted_flops,
                "expert_flops": 0,
                "routed_bytes": 0,
                "kernels": layer.core_kernels,
                "memory_kernels": min(layer.memory_kernels, max(0, layer.core_kernels - 2)),
                "replicated_activation_bytes": 0,
                "unsplit_bytes": 0,
                "sharded_activation_bytes": layer.core_bytes,
            }
        )
        return self._passes(core, j, tp, b)[0]
