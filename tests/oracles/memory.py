"""Memory and optimizer of a plan from docs/cost.md, layer by layer, operation by operation."""

from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from formulations.instance.workload import QUANTIZED_BLOCK, Recompute
from formulations.schedules.operations import Kind
from formulations.schedules.registry import device_order
from tests.oracles.compute import kept_bytes, layer_of
from tests.oracles.places import Places, ns


@dataclass(frozen=True)
class Memory:
    """What the GPUs of one plan hold."""

    at: Places

    def parts(self, k: int, r: int) -> dict[str, int]:
        at, workload, config = self.at, self.at.instance.workload, self.at.plan.config
        slot = at.stages[k][r].degrees
        layers = [x for row in at.stages[k :: config.pp] for x in range(*row[r].layers)]
        states = [self._split(x, k, r, 1) for x in layers]
        parameters, gradients = (sum(self._split(x, k, r, n) for x in layers) for n in (3, 2))
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
        workload, config = self.at.instance.workload, self.at.plan.config
        touched = workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes
        stage = self.at.stages[k][r]
        speed = self.at.of(stage.group.node).gpu.memory_bandwidth_bytes_per_s
        layers = [x for row in self.at.stages[k :: config.pp] for x in range(*row[r].layers)]
        return sum(ns(touched * self._split(x, k, r, 1) / speed) for x in layers)

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
        copies = self._copies(k, r) if self.at.plan.config.zero >= zero else (1, 1)
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
        zero, workload = at.plan.config.zero, at.instance.workload
        pairs = zip(self._whole(x, k, r), self._copies(k, r), strict=True)
        shared = sum(count for count, copies in pairs if copies > 1)
        width = (zero >= 2) * workload.gradient_bytes + (zero >= 3) * workload.parameter_bytes
        split = zero >= 2 and self._copies(k, r)[0] > 1
        whole = width * shared + (not split) * self._on_the_way(x, k, r)
        return ceil(b * kept / slot.cp), ceil(b * besides / slot.cp) + whole

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
        order = list(device_order(config.schedule, config.pp, k, m, config.vpp))
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
