"""Passes of the stages of a plan: tensor groups, experts, long sequences, ZeRO 2 and 3."""

from dataclasses import dataclass

from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Stage
from tests.oracles.compute import Compute
from tests.oracles.places import Places, ns, ring_s
from tests.oracles.rings import Rings

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
        forward_s, backward_s, weight_s, core_s = Compute(self.at).of(x, j, slot)
        traffic, weight = self._layer_s(x, j, slot), int(weight_s * 1e9)
        forward_s += traffic[0]
        repeated_s = {"none": 0.0, "selective": core_s, "full": forward_s}[again]
        return ns(forward_s), ns(backward_s + traffic[1] + repeated_s) - weight, weight

    def _layer_s(self, x: int, j: int, slot: Degrees) -> tuple[float, float]:
        """Traffic in the forward and in the backward pass of a layer on a node group."""
        at, layer, link = self.at, self.at.rows[x], self.at.nodes_like(j).intra_node
        size = at.tokens(slot) * at.model.element_bytes * at.model.hidden
        seen = 1 - at.instance.search.overlap.tensor_parallel
        all_reduce_s = seen * ring_s(2, slot.tp, size, link)
        spared = layer.routed and at.plan.config.etp == 1
        forward, backward = ((number - spared) * all_reduce_s for number in layer.all_reduces)
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
        near = (most - 1) / ep * size / (RATE * group.intra_node.bandwidth_bytes_per_s)
        speed = RATE * group.inter_node.bandwidth_bytes_per_s * at.efficiency(ep // u)
        far = (ep - u) / ep * size * group.gpus_per_node / speed
        start = (most - 1) * group.intra_node.latency_s + (ep // u - 1) * group.inter_node.latency_s
        total = 2 * (max(near, far) + start)
        if config.etp != 1:
            total += ring_s(2, slot.tp, copies - tokens_bytes, group.intra_node)
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
        link, gpu = at.nodes_like(j).intra_node, at.nodes_like(j).gpu
        if method == "all_to_all":
            size = (cp - 1) / cp * (keys + queries) / (tp * cp)
            exchange_s = size / link.bandwidth_bytes_per_s + 2 * (cp - 1) * link.latency_s
            return exchange_s, exchange_s
        turns_s = (cp - 1) / cp * keys / tp / link.bandwidth_bytes_per_s + (cp - 1) * link.latency_s
        sums = 5 * cp * queries / (2 * tp * cp) / gpu.memory_bandwidth_bytes_per_s
        maximum = gpu.attention_maximum or gpu.efficiency_maximum
        sums += (cp - 1) * gpu.attention_half_flops / (gpu.half_peak * maximum)
        return turns_s + sums, 2 * turns_s + sums
