"""All costs of a plan, worked out from docs/cost.md alone: an oracle for `formulations.costs`.

It reads the instance and the plan, the sizes of the model, the links of the cluster and `search`,
and imports nothing that counts. What a layer of the instance has of FLOPs, kernels and bytes is
given; `layers` counts its FLOPs and parameters from the sizes.
"""

from dataclasses import dataclass
from math import ceil

from formulations.instance import Instance
from formulations.instance.machines import Link
from formulations.plan import Degrees, Plan, Stage
from tests.oracles.layers import Model
from tests.oracles.memory import Memory
from tests.oracles.passes import Passes
from tests.oracles.places import Places, ns
from tests.oracles.rings import Rings


def counted(instance: Instance, plan: Plan, model: Model) -> dict[str, object]:
    """All costs of a plan, by their names in `PlanCosts`."""
    at = Places(instance, plan, model)
    rings, messages, memory = Rings(at), Messages(at), Memory(at)
    passes, replicas, devices = Passes(at, rings), range(plan.config.dp), range(plan.config.pp)
    times = [[passes.times_ns(s, r) for r in replicas] for s in range(len(at.stages))]
    forward, backward, weight = ([[one[i] for one in row] for row in times] for i in range(3))
    sync = [rings.after_ns(d, rings.sync_factor, model.gradient_bytes) for d in devices]
    gather = [rings.after_ns(d, rings.gather_factor, model.parameter_bytes) for d in devices]
    usable = 1 - instance.limits.memory_headroom
    boundaries = range(len(at.stages) - 1)
    return {
        "forward_ns": forward,
        "backward_ns": backward,
        "weight_ns": weight,
        "send_ns": [[messages.time_ns(s, r) for r in replicas] for s in boundaries],
        "sync_ns": sync,
        "optimizer_ns": [max(memory.optimizer_ns(d, r) for r in replicas) for d in devices],
        "gather_ns": gather,
        "embedding_ns": rings.embedding_ns(),
        "memory_bytes": [[sum(memory.parts(d, r).values()) for r in replicas] for d in devices],
        "limit_bytes": [
            [int(at.of(at.stages[d][r].group.node).gpu.memory_bytes * usable) for r in replicas]
            for d in devices
        ],
    }


@dataclass(frozen=True)
class Messages:
    """Those between the stages of one plan."""

    at: Places

    def time_ns(self, s: int, r: int) -> int:
        at = self.at
        source, target = at.stages[s][r], at.stages[s + 1][r]
        tensors = 2 if at.rows[source.layers[1] - 1].kind == "decoder" else 1
        nodes = source.group.node, target.group.node
        if nodes[0] == nodes[1]:
            sizes = [tensors * self._message_bytes(end.degrees) for end in (source, target)]
            return max(ns(self._inside_s(nodes[0], size)) for size in sizes)
        pairs = [
            (a.group.node, b.group.node)
            for a, b in zip(at.stages[s], at.stages[s + 1], strict=True)
            if a.group.node != b.group.node
        ]
        leaving = sum(a == nodes[0] for a, _ in pairs)
        entering = sum(b == nodes[1] for _, b in pairs)
        links = [at.of(node).inter_node for node in nodes]
        ends = [(source, links[0], leaving), (target, links[1], entering)]
        zones = at.of(nodes[0]).zone, at.of(nodes[1]).zone
        if zones[0] != zones[1]:
            flows = sum((at.of(a).zone, at.of(b).zone) == zones for a, b in pairs)
            link = at.zone_link(frozenset(zones))
            ends += [(source, link, flows), (target, link, flows)]
        both = max(source.degrees.tp, target.degrees.tp)
        widest = both if at.plan.config.per_stage else at.widest.tp
        return max(ns(self._outside_s(*end, tensors, widest)) for end in ends)

    def _message_bytes(self, slot: Degrees) -> int:
        """S of one tensor, on one GPU."""
        parts = slot.tp if self.at.splits(slot.tp) or self.at.instance.search.scatter_gather else 1
        elements = self.at.sequences(slot) * self.at.model.tokens * self.at.model.hidden
        return ceil(elements * self.at.model.element_bytes / (slot.cp * parts))

    def _inside_s(self, node: int, size: float) -> float:
        link = self.at.of(node).intra_node
        return size / link.bandwidth_bytes_per_s + link.latency_s

    def _outside_s(self, end: Stage, link: Link, flows: int, tensors: int, widest: int) -> float:
        search, slot = self.at.instance.search, end.degrees
        splits = (self.at.splits(slot.tp) and self.at.splits(widest)) or search.scatter_gather
        size = tensors * self._message_bytes(slot)
        lanes = slot.cp * slot.parts * (slot.tp if splits else widest)
        seconds = size * lanes * flows / link.bandwidth_bytes_per_s + link.latency_s
        if search.scatter_gather and not self.at.splits(slot.tp):
            seconds += (slot.tp - 1) * self._inside_s(end.group.node, size)
        return seconds
