"""What links between zones cost the stages of a layered graph.

The flows of a stage boundary are those of two neighbouring stages: an arc knows both, so its
transfers are those of `formulations.costs.transfers`. How many stages' rings share a link is not
known to one arc: its own counts, which is the least.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from formulations.costs.placement import Placer, SyncPhase
from formulations.costs.transfers import Pair, ZoneRing, neighbours


class StageZones:
    """Zones under the stages of one shape; `slots`: node group of every slot of a stage."""

    def __init__(self, placer: Placer) -> None:
        self.placer, self.tables = placer, placer.tables
        self.terms = placer.zones
        self.zone_of_group = self.terms.zone_of_group
        self.known = self.tables.instance.cluster.has_zones

    def ring(self, groups: Sequence[int]) -> ZoneRing | None:
        """Rate and latency that a stage on nodes of these groups has at least between zones."""
        pairs = neighbours([self.zone_of_group[j] for j in groups])
        return self.terms.ring(dict.fromkeys(pairs, 1)) if pairs else None

    def sends(
        self, before: Sequence[int], after: Sequence[int], width: int
    ) -> list[tuple[int, ...]]:
        """[K] messages from a stage to the next by lanes of `width` replicas, 0 inside a zone."""
        zone, none = self.zone_of_group, (0,) * len(self.tables.tensors)
        flows = Counter((zone[i], zone[j]) for i, j in zip(before, after, strict=True))
        return [
            self.terms.send_ns(i, j, flows[zone[i], zone[j]] * width)
            if zone[i] != zone[j]
            else none
            for i, j in zip(before, after, strict=True)
        ]

    def embedding_ns(self, first: int, group: int) -> int:
        """Tied embeddings of a first stage in zone `first` and a last one on nodes of a group."""
        if first == self.zone_of_group[group]:
            return 0
        return self.terms.embedding_ns((first, self.zone_of_group[group]), self.tables.shape.dp)

    @property
    def _pairs(self) -> list[Pair]:
        """Of zones used."""
        used = {self.zone_of_group[j] for j in self.tables.used}
        return list(combinations(sorted(used), 2))

    def spanning_ns(self) -> int:
        """No plan in which some stage spans zones has a shorter step.

        Proof. The stage has a layer, and n >= 2 nodes, min(dp, all nodes) at most. Its last
        backward comes after a forward pass of all stages, which takes no less than every layer on
        its fastest group used. The sync of the stage follows, and its gather: tp rings at least
        share a link between two zones used, so the part between nodes takes no less than for that
        layer, the n and the link of least time, and one ring. So does the start-up, (n - 1)
        latencies of that link.
        """
        tables = self.tables
        most = min(tables.shape.dp, sum(tables.shape.nodes_used))
        phases = [phase for phase in (self.placer.sync, self.placer.gather) if phase is not None]
        return tables.least_forward_ns + sum(
            self._least_ring_ns(phase, range(2, most + 1)) for phase in phases
        )

    def _least_ring_ns(self, phase: SyncPhase, counts: range) -> int:
        """Of any layer on any of these numbers of nodes, over a link between zones used."""
        efficiency = self.tables.instance.cluster.efficiency
        rings = [self.terms.ring({pair: 1}) for pair in self._pairs]
        times = [
            int(phase.outside_ns(rate, n, efficiency(n)).min()) + phase.latency_ns(0.0, n, latency)
            for rate, latency in rings
            for n in counts
        ]
        return min(times, default=0)

    @property
    def aligned(self) -> bool:
        """Whether the slots of every zone make whole stages, without which some stage spans two."""
        shape, slots = self.tables.shape, Counter[int]()
        for j, count in enumerate(shape.nodes_used):
            slots[self.zone_of_group[j]] += count * self.tables.slots_per_node[j]
        return all(count % shape.dp == 0 for count in slots.values())

    def split_by(self, cutoff: int | None) -> bool:
        """Whether no stage of a plan below the cutoff spans zones: for want of them or of time."""
        if not self.known or self.tables.shape.dp == 1 or not self._pairs:
            return self.known
        return cutoff is not None and self.spanning_ns() >= cutoff
