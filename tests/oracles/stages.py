"""Stages of a plan from docs/cost.md: layer times, passes with their traffic, memory, optimizer.

A layer's FLOPs, kernels and bytes are data here; `layers` counts FLOPs and parameters again.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from formulations.instance import Layer
from formulations.instance.workload import QUANTIZED_BLOCK, Recompute
from formulations.plan import Degrees, Stage
from formulations.schedules.registry import Kind, device_order
from tests.oracles.traffic import Places, Rings, ns, ring_s

#: Rate of fused attention backward over forward.
ATTENTION_RATE = 0.85


#: Of a layer: forward, backward, of that weight gradients; the attention core forward.
Seconds = tuple[float, float, float, float, float]


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
        repeated = self._per_op_s(layer, j, slot.tp, sequences) if layer.is_block else 0.0
        return forward, backward, share * backward, core, repeated

    def _peaks(self, j: int) -> tuple[float, float]:
        """Of products of blocks, and of all else: with fp8 in 16 bit."""
        precision, peaks = self.at.instance.workload.precision, self.at.nodes_like(j).gpu.peak_flops
        return peaks[precision], peaks["bf16" if precision in ("fp8", "fp4") else precision]

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
        g = workload.gradient_bytes
        narrow = {"fp8": 1, "fp4": 0.5}  # of the copy that products read
        w = narrow.get(workload.precision, workload.parameter_bytes)
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

    def _per_op_s(self, layer: Layer, j: int, tp: int, b: float) -> float:
        """Keys, output and up (or down), and all that is bound by memory."""
        model = self.at.model
        queries, values, width = (n // model.element_bytes for n in model.row_bytes())
        products = 2 * model.hidden * (values + queries + width)
        changed = {"forward_flops": products, "unweighted_flops": 0, "attention_flops": 0}
        repeated = layer.model_copy(update=changed | {"kernels": layer.memory_kernels + 3})
        return self._passes(repeated, j, tp, b)[0]


#: Rate of an all-to-all over that of an all-gather.
RATE = 0.597 / 0.673


@dataclass(frozen=True)
class Passes:
    """Those of one plan."""

    at: Places
    rings: Rings

    def times_ns(self, s: int, r: int) -> tuple[int, int, int]:
        stage, rows = self.at.stages[s][r], self.at.rows
        blocks = [x for x in range(*stage.layers) if rows[x].kind in ("block", "decoder")]
        again = dict.fromkeys(blocks[: stage.recomputed.blocks], stage.recomputed.way)
        forward = backward = late = 0
        for x in range(*stage.layers):
            there, inputs, weight = self._layer(x, stage, again.get(x, "none"))
            gather, reduce = self.rings.with_micro_batches_ns(x)
            forward += self._beside(there, gather)
            late += self._beside(weight, reduce)
            backward += self._beside(inputs, gather) + self._beside(weight, reduce)
        return forward, backward, late

    def _beside(self, time_ns: int, exchange_ns: int) -> int:
        """A pass, and what is exchanged in it, of which a share hides while the pass lasts."""
        hidden = int(self.at.instance.search.overlap.sharding * exchange_ns)
        return time_ns + exchange_ns - min(hidden, time_ns)

    def _layer(self, x: int, stage: Stage, again: Recompute) -> tuple[int, int, int]:
        """Passes of a layer: forward, for input gradients, for weight gradients.

        On the slowest nodes where replicas, or groups of experts, wait for these. again: what of
        it is recomputed.
        """
        at = self.at
        if self.rings.in_lockstep(x) or (at.grid and at.together < at.plan.config.ep):
            each = [self._alone(x, j, at.degrees(j), again) for j in at.used]
        else:
            j = at.instance.cluster.node_groups[stage.group.node]
            each = [self._alone(x, j, stage.degrees, again)]
        forward, inputs, weight = (max(times) for times in zip(*each, strict=True))
        return forward, inputs, weight

    def _alone(self, x: int, j: int, slot: Degrees, again: Recompute) -> tuple[int, int, int]:
        forward_s, backward_s, weight_s, core_s, per_op_s = Compute(self.at).of(x, j, slot)
        traffic, weight = self._layer_s(x, j, slot), int(weight_s * 1e9)
        forward_s += traffic[0]
        gathered_s = self._tensor_s(x, j, slot)[0] / (2 if self.at.splits(slot.tp) else 1)
        repeated = {"selective": core_s, "per_op": per_op_s + gathered_s, "full": forward_s}
        repeated_s = repeated.get(again, 0.0)
        return ns(forward_s), ns(backward_s + traffic[1] + repeated_s) - weight, weight

    def _tensor_s(self, x: int, j: int, slot: Degrees) -> tuple[float, float]:
        """All-reduces of a tensor group in the forward and in the backward pass of a layer."""
        at, layer, link = self.at, self.at.rows[x], self.at.near_tensors(j, slot.tp)
        size = at.tokens(slot) * at.model.element_bytes * at.model.hidden
        seen = 1 - at.instance.search.overlap.tensor_parallel
        all_reduce_s = seen * ring_s(2, slot.tp, size, link)
        spared = layer.routed and at.plan.config.etp == 1
        forward, backward = ((number - spared) * all_reduce_s for number in layer.all_reduces)
        return forward, backward

    def _layer_s(self, x: int, j: int, slot: Degrees) -> tuple[float, float]:
        """Traffic in the forward and in the backward pass of a layer on a node group."""
        at, layer = self.at, self.at.rows[x]
        forward, backward = self._tensor_s(x, j, slot)
        size = at.tokens(slot) * at.model.element_bytes * at.model.hidden
        experts = self._experts_s(j, slot, size) if layer.routed else 0.0
        context = self._context_s(j, slot) if layer.attention else (0.0, 0.0)
        return forward + experts + context[0], backward + experts + context[1]

    def _experts_s(self, j: int, slot: Degrees, tokens_bytes: float) -> float:
        """Two all-to-alls, and what a tensor group gathers and reduces."""
        at, config, ep = self.at, self.at.plan.config, self.at.plan.config.ep
        if ep == 1:
            return 0.0
        assert at.model.sizes.moe is not None
        u, most, group = at.together, min(ep, at.ranks(j)), at.nodes_like(j)
        copies = tokens_bytes * at.model.sizes.moe.experts_per_token
        size = copies / slot.tp if at.splits(slot.tp) else copies
        inside = at.near(j, group.gpus_per_node // most)
        near = (most - 1) / ep * size / (RATE * inside.bandwidth_bytes_per_s)
        speed = RATE * group.inter_node.bandwidth_bytes_per_s * at.efficiency(ep // u)
        far = (ep - u) / ep * size * group.gpus_per_node / speed
        start = (most - 1) * group.intra_node.latency_s + (ep // u - 1) * group.inter_node.latency_s
        total = 2 * (max(near, far) + start)
        if config.etp != 1:
            total += ring_s(2, slot.tp, copies - tokens_bytes, at.near_tensors(j, slot.tp))
        return (1 - at.instance.search.overlap.expert_parallel) * total

    def _context_s(self, j: int, slot: Degrees) -> tuple[float, float]:
        """Forward and backward, with the sums of a ring's turns."""
        at, cp, tp = self.at, slot.cp, slot.tp
        if cp == 1:
            return 0.0, 0.0
        keys = at.sequences(slot) * at.model.key_value_bytes()
        queries = at.sequences(slot) * at.model.query_bytes()
        heads = at.model.sizes.kv_heads or at.model.sizes.heads
        exchanged = heads % (tp * cp) == 0 and 2 * (keys + queries) < 3 * cp * keys
        method = at.instance.search.context_method or ("all_to_all" if exchanged else "ring")
        group = at.nodes_like(j)
        link, gpu = at.near_copies(j, slot.tp, group.gpus_per_node // cp), group.gpu
        if method == "all_to_all":
            size = (cp - 1) / cp * (keys + queries) / (tp * cp)
            exchange_s = size / link.bandwidth_bytes_per_s + 2 * (cp - 1) * link.latency_s
            return exchange_s, exchange_s
        turns_s = (cp - 1) / cp * keys / tp / link.bandwidth_bytes_per_s + (cp - 1) * link.latency_s
        sums = 5 * cp * queries / (2 * tp * cp) / gpu.memory_bandwidth_bytes_per_s
        maximum = gpu.attention_maximum or gpu.efficiency_maximum
        sums += (cp - 1) * gpu.attention_half_flops / (gpu.half_peak * maximum)
        return turns_s + sums, 2 * turns_s + sums


@dataclass(frozen=True)
class Memory:
    """What the GPUs of one plan hold."""

    at: Places

    def parts(self, k: int, r: int) -> dict[str, int]:
        at, workload, config = self.at, self.at.instance.workload, self.at.plan.config
        slot = at.stages[k][r].degrees
        layers = at.layers_of(k)
        states = [self._split(x, k, r, 1) for x in layers]
        split_from = (3, 2 if config.sync_each_batch else 4)  # kept ones are split nowhere
        parameters, gradients = (sum(self._split(x, k, r, n) for x in layers) for n in split_from)
        blocks = sum(ceil(count / QUANTIZED_BLOCK) for count in states)
        quantized = workload.optimizer_block_bytes * blocks
        copies = sum(sum(self._whole(x, k, r)) for x in layers if layer_of(at, x).is_block)
        tensors = max(layer.output_tensors for layer in workload.layers)
        message = ceil(at.sequences(slot) * tensors * workload.boundary_bytes / slot.cp)
        sent = ceil(message / (slot.tp if at.splits(slot.tp) else 1))
        return {
            "weights_bytes": workload.parameter_bytes * parameters + workload.copy_bytes * copies,
            "gradients_bytes": workload.gradient_bytes * gradients,
            "optimizer_bytes": workload.optimizer_bytes * sum(states) + quantized,
            "activations_bytes": self._in_flight(k, r) + self._one_layer(k, r),
            "buffers_bytes": 2 * sent if config.pp > 1 else 0,
            "reserve_bytes": at.instance.limits.framework_reserve_bytes,
        }

    def optimizer_ns(self, k: int, r: int) -> int:
        """Reads gradient and state, writes state and parameter, layer by layer."""
        workload = self.at.instance.workload
        touched = workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes
        stage = self.at.stages[k][r]
        speed = self.at.of(stage.group.node).gpu.memory_bandwidth_bytes_per_s
        return sum(ns(touched * self._split(x, k, r, 1) / speed) for x in self.at.layers_of(k))

    def _whole(self, x: int, k: int, r: int) -> tuple[int, int]:
        """Parameters of a layer on a GPU: those that all replicas have, those of routed experts."""
        at, slot = self.at, self.at.stages[k][r].degrees
        alike, experts = at.model.parameters(at.rows[x], slot.tp, at.plan.config.pp)
        if not at.grid:
            return alike + ceil(experts / slot.tp), 0
        lanes = slot.tp if at.plan.config.etp is None else 1
        return alike, ceil(experts / (lanes * at.plan.config.ep))

    def _copies(self, k: int, r: int) -> tuple[int, int]:
        """GPUs of a stage with the same of each."""
        config, slot = self.at.plan.config, self.at.stages[k][r].degrees
        lanes = slot.tp if config.etp is None else 1
        same = config.dp * slot.parts * slot.cp
        return same, max(1, same * slot.tp // (lanes * config.ep))

    def _split(self, x: int, k: int, r: int, zero: int) -> int:
        """What a GPU has of a layer for itself where ZeRO splits it from this stage on."""
        config = self.at.plan.config
        alike, experts = self._copies(k, r) if config.zero >= zero else (1, 1)
        copies = max(1, alike // config.optimizer_instances), experts
        return sum(ceil(n / m) for n, m in zip(self._whole(x, k, r), copies, strict=True))

    def _ways(self, s: int, r: int) -> list[tuple[int, Recompute]]:
        """Layers of virtual stage s and what is recomputed of each: of the first blocks alone.

        Where all of a plan recompute alike, layers that are no blocks count as the rest.
        """
        stage, way = self.at.stages[s][r], self.at.plan.config.recompute[0]
        blocks = [x for x in range(*stage.layers) if layer_of(self.at, x).is_block]
        again = set(blocks[: stage.recomputed.blocks])
        return [(x, stage.recomputed.way if x in again else way) for x in range(*stage.layers)]

    def _kept(self, x: int, k: int, r: int, way: Recompute) -> tuple[int, int]:
        """Bytes of one micro-batch between its passes, and besides while the layer works."""
        at, slot = self.at, self.at.stages[k][r].degrees
        layer, b = layer_of(at, x), at.sequences(slot)
        every, split = kept_bytes(at, layer, slot.tp), at.splits(slot.tp)
        kept, besides = every, 0
        if layer.is_block and way == "full":
            kept = ceil(layer.input_bytes / slot.tp) if split else layer.input_bytes
            besides = every
        elif layer.is_block and way == "selective":
            besides = layer.core_bytes // slot.tp
            kept = every - besides
        elif layer.is_block and way == "per_op":
            results = self._per_op_results(slot.tp)
            inputs = ceil(layer.input_bytes / slot.tp) if split else layer.input_bytes
            kept, besides = inputs + results, max(0, every - results)
        zero, workload = at.plan.config.zero, at.instance.workload
        pairs = zip(self._whole(x, k, r), self._copies(k, r), strict=True)
        shared = sum(count for count, copies in pairs if copies > 1)
        reduced = zero >= 2 and at.plan.config.sync_each_batch
        width = reduced * workload.gradient_bytes + (zero >= 3) * workload.parameter_bytes
        split = reduced and self._copies(k, r)[0] > 1
        whole = width * shared + (not split) * self._on_the_way(x, k, r)
        return ceil(b * kept / slot.cp), ceil(b * besides / slot.cp) + whole

    def _per_op_results(self, tp: int) -> int:
        """Of a sequence: queries, values, attention and its sums, gate (or up), down if gated."""
        model = self.at.model
        queries, values, width = model.row_bytes()
        sums = 2 * model.element_bytes * model.tokens * model.sizes.heads
        down = model.element_bytes * model.tokens * model.hidden * model.sizes.gated_ffn
        return down + ceil((2 * queries + values + width + sums) / tp)

    def _on_the_way(self, x: int, k: int, r: int) -> int:
        """Weight gradients before they are added up: of a block's matrices, or of the head's."""
        at, slot, workload = self.at, self.at.stages[k][r].degrees, self.at.instance.workload
        parts = [row.parameters for row in at.rows if row.kind not in ("embedding", "head")]
        dense = [ceil((part.sharded) / slot.tp) + part.replicated for part in parts]
        if layer_of(at, x).is_block:
            own = at.rows[x].parameters
            return workload.parameter_bytes * (ceil(own.sharded / slot.tp) + own.replicated)
        if x == 0:
            return 0
        padded = 128 * slot.tp * ceil(at.rows[x].vocabulary / (128 * slot.tp))
        logits = at.model.element_bytes * at.model.tokens * at.rows[x].vocabulary
        beside = 0 if workload.fused_cross_entropy else logits // slot.tp
        beside += 2 * workload.boundary_bytes * (slot.tp > 1 and at.splits(slot.tp))
        matrix = padded // slot.tp * at.model.hidden + max(dense)
        return workload.parameter_bytes * matrix + ceil(at.sequences(slot) * beside / slot.cp)

    def _one_layer(self, k: int, r: int) -> int:
        stages = range(k, len(self.at.stages), self.at.plan.config.pp)
        pairs = [pair for s in stages for pair in self._ways(s, r)]
        return max(self._kept(x, k, r, way)[1] for x, way in pairs)

    def _in_flight(self, k: int, r: int) -> int:
        """Most that is kept at once: from forward to backward, or to late weight gradients."""
        at, config = self.at, self.at.plan.config
        slot, m = at.stages[k][r].degrees, at.plan.replicas[r].micro_batches
        order = list(device_order(config.schedule, config.pp, k, m, *config.chunking))
        splits = any(operation.kind is Kind.WEIGHT for operation in order)
        kept, late = dict[int, int](), dict[int, int]()
        for s in range(k, len(at.stages), config.pp):
            kept[s] = sum(self._kept(x, k, r, way)[0] for x, way in self._ways(s, r))
            layers = [layer_of(at, x) for x in range(*at.stages[s][r].layers)]
            needed = (at.sequences(slot) * kept_bytes(at, one, slot.tp, True) for one in layers)
            late[s] = splits * sum(ceil(size / slot.cp) for size in needed)
        change = {
            Kind.FORWARD: kept,
            Kind.BACKWARD: {s: late[s] - kept[s] for s in kept},
            Kind.WEIGHT: {s: -late[s] for s in kept},
        }
        return max(accumulate(change[one.kind][one.stage] for one in order))
