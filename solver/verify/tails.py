"""What follows the last backward of a stage, by the nodes that it stands on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_sums
from formulations.costs.memory import layer_memory
from formulations.instance import Instance, Link
from formulations.plan import Shape
from formulations.units import ceil_div, ceil_ns
from solver.verify.expert_rings import rings_of_experts_ns
from solver.verify.link_times import Member, ceil_all_ns, pair_s, rings_ns
from solver.verify.stage_messages import Spot, common, stage_slots
from solver.verify.volumes import (
    collective_factors,
    shards,
    tied_bytes,
    touched_bytes,
    widest,
)
from solver.verify.zone_links import zone_legs

Array = NDArray[np.int64]
Place = tuple[int, int, int]  #: group of a node, its slots of a stage, rings over its border


class Tails:
    """Rows of [n, n] ns from the last backward of a stage to its end.

    Gradient sync, tied embeddings as far as its nodes decide it, slowest optimizer, gather.
    `syncs` and `embeddings` have the first two of each row of `whole`.
    """

    def __init__(self, instance: Instance, shape: Shape) -> None:
        self.instance, self.shape = instance, shape
        groups = range(len(shape.degrees))
        self.tied = [tied_bytes(instance, shape, j) for j in groups]
        memory = layer_memory(instance, shape)
        self.parameters = np.stack([own.parameters for own in memory], axis=1)  # [L, J]
        self.experts = np.stack([own.experts for own in memory], axis=1)  # [L, J]
        self.whole: list[Array] = []
        self.syncs: list[Array] = []
        self.embeddings: list[int] = []
        self._rows: dict[tuple[object, ...], int] = {}
        self._crossing: dict[Spot, int] = {}

    def row(self, k: int, spots: Sequence[Spot]) -> int:
        """The row of stage k on these nodes."""
        stage = stage_slots(self.shape, k)
        members = sorted((s.group, len(common(s.slots, stage)), self._rings(s)) for s in spots)
        tied = any(self.tied) and k in (0, self.shape.pp - 1)
        return self.row_of_nodes(members, max(map(self._embedding_ns, spots)) if tied else 0)

    def row_of_nodes(self, members: Sequence[Place], embedding: int) -> int:
        """The row of a stage on nodes of these groups, with so much for tied embeddings."""
        key = (*members, embedding)
        if key not in self._rows:
            self._rows[key] = len(self.whole)
            sync = self._sync_ns(members)
            self.whole.append(sync + embedding + self._after_ns(members))
            self.syncs.append(sync)
            self.embeddings.append(embedding)
        return self._rows[key]

    def row_of(self, group: int, before: Array) -> int:
        """The row of a stage on a node of a group that waits for no tied embeddings."""
        key = (group,)
        if key not in self._rows:
            self._rows[key] = len(self.whole)
            self.whole.append(before)
            self.syncs.append(before)
            self.embeddings.append(0)
        return self._rows[key]

    def waits_ns(self, own: Array, others: Array) -> Array:
        """[M] what one of the outer stages with these rows waits at least for the other's link.

        Both reduce tied embeddings together, as fast as the slower one. others: [N] rows of its.
        """
        known = np.array(self.embeddings)
        waits: Array = np.maximum(known[others].min() - known[own], 0)
        return waits

    def _sync_ns(self, members: Sequence[Place]) -> Array:
        """[n, n] gradient sync."""
        factor = collective_factors(self.instance, self.shape)[0]
        return self._collective_ns(members, factor, self.instance.workload.gradient_bytes)

    def _after_ns(self, members: Sequence[Place]) -> Array:
        """[n, n] slowest optimizer, gather."""
        slowest: Array = np.max([self._optimizer_ns(j) for j, _, _ in members], axis=0)
        factor = collective_factors(self.instance, self.shape)[1]
        size = self.instance.workload.parameter_bytes
        return slowest + self._collective_ns(members, factor, size)

    def _optimizer_ns(self, j: int) -> Array:
        """[n, n] on GPUs of group j."""
        own = shards(self.shape, 1, j, self.parameters[:, j], self.experts[:, j])
        sizes = touched_bytes(self.instance.workload) * own
        speed = self.instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
        return interval_sums(ceil_all_ns(sizes / speed))

    def _collective_ns(self, members: Sequence[Place], factor: float, size: int) -> Array:
        """[n, n] ring collective over the replicas of a stage on all its nodes.

        Of so many bytes per parameter.
        """
        groups, degrees = self.instance.cluster.groups, self.shape.degrees
        sizes_bytes = size * self.parameters
        experts = rings_of_experts_ns(self.instance, self.shape, factor, size * self.experts)
        nodes = [
            Member(groups[j], n * degrees[j].parts * degrees[j].cp, rings, sizes_bytes[:, j])
            for j, n, rings in members
        ]
        most, join = widest(self.shape), self.instance.cluster.link_between
        legs = zone_legs(self.instance, (j for j, _, _ in members))
        more = [(join(*leg), degrees[most].tp, sizes_bytes[:, most]) for leg in legs]
        layers, start_ns = rings_ns(self.instance, factor, nodes, more)
        return interval_sums(layers + experts) + start_ns

    def _rings(self, spot: Spot) -> int:
        """Rings of GPUs that cross the node's border: tp for every stage that is not all on it."""
        if spot not in self._crossing:
            dp, slots = self.shape.dp, spot.slots
            stages = range(slots.start // dp, ceil_div(slots.stop, dp))
            parts = [len(common(slots, stage_slots(self.shape, k))) for k in stages]
            tp = self.shape.degrees[spot.group].tp
            self._crossing[spot] = tp * sum(part < dp for part in parts)
        return self._crossing[spot]

    def _embedding_ns(self, spot: Spot) -> int:
        """All-reduce of tied embeddings over the links of this node."""
        ends = [stage_slots(self.shape, k) for k in (0, self.shape.pp - 1)]
        pairs = [(a in spot.slots, b in spot.slots) for a, b in zip(*ends, strict=True)]
        group, crossing = self.instance.cluster.groups[spot.group], sum(a != b for a, b in pairs)
        links: list[tuple[Link, int]] = []
        if crossing:
            links.append((group.inter_node, crossing * self.shape.degrees[spot.group].width))
        if any(a and b for a, b in pairs):
            links.append((group.intra_node, 1))
        return max(ceil_ns(pair_s(*link, self.tied[spot.group])) for link in links)
