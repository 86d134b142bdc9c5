"""What moves between two fleets: layers that a node must hold and does not hold yet.

A layer's state, parameters and optimizer state, is the same in all pipelines, so any node that
holds the layer can send it (Jang et al., Oobleck, SOSP 2023, section 5.3). What moves inside a node
is not counted, and no node passes on what it has just received.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from math import ceil

from formulations.fleet import Pipeline, holdings
from formulations.instance import Cluster, Workload
from formulations.units import ceil_ns


def layer_state_bytes(workload: Workload) -> tuple[int, ...]:
    """Bytes of every layer's parameters and optimizer state; a tied matrix counts in each layer."""
    counts = [layer.parameters_per_gpu(tp=1, pp=2) for layer in workload.layers]
    return tuple(workload.parameter_bytes * n + workload.state_bytes(n) for n in counts)


@dataclass(frozen=True)
class Copy:
    """One layer sent from a node to a node; source None: no node holds it, a checkpoint has to."""

    layer: int
    source: int | None
    target: int


def missing(present: dict[int, range], pipelines: Iterable[Pipeline]) -> Iterator[tuple[int, int]]:
    """(node, layer) for all layers that nodes of `pipelines` need and do not hold."""
    for node, layers in holdings(pipelines).items():
        on_node = present.get(node, range(0))
        yield from ((node, layer) for layer in layers if layer not in on_node)


class Links:
    """Time on the links out of the nodes and between zones, as exact fractions of a nanosecond.

    Every flow runs at a constant rate from the begin to the end: then the time is that of the
    busiest link, which no schedule beats. Links are full duplex.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.zone_of = [cluster.zone_of_group[j] for j in cluster.node_groups]
        groups = [cluster.groups[j] for j in cluster.node_groups]
        self._ns_per_byte = [ns_per_byte(g.inter_node.bandwidth_bytes_per_s) for g in groups]
        between = cluster.links_among(range(len(cluster.groups)))
        latency_s = max(group.inter_node.latency_s for group in groups)
        self.latency_ns = ceil_ns(
            latency_s + max((zone.latency_s for zone in between), default=0.0)
        )
        self._zone_ns_per_byte = {
            (y, z): ns_per_byte(cluster.link_between(zone, zone_after).bandwidth_bytes_per_s)
            for (y, zone), (z, zone_after) in permutations(enumerate(cluster.zones), 2)
        }

    def node_ns(self, node: int, size_bytes: int) -> Fraction:
        """Time of so many bytes into a node, or out of it."""
        return size_bytes * self._ns_per_byte[node]

    def zone_ns(self, source: int, target: int, size_bytes: int) -> Fraction:
        """Time of so many bytes from one zone to another, both by number."""
        return size_bytes * self._zone_ns_per_byte[source, target]

    def loads_ns(
        self, copies: Iterable[Copy], layer_bytes: Sequence[int]
    ) -> dict[tuple[str, int, int], Fraction]:
        """Time of every link that carries something: ("in" or "out", node, 0), ("zone", a, b)."""
        loads: dict[tuple[str, int, int], Fraction] = {}
        for copy in copies:
            size = layer_bytes[copy.layer]
            uses = [(("in", copy.target, 0), self.node_ns(copy.target, size))]
            if copy.source is not None:
                uses.append((("out", copy.source, 0), self.node_ns(copy.source, size)))
                zones = self.zone_of[copy.source], self.zone_of[copy.target]
                if zones[0] != zones[1]:
                    uses.append((("zone", *zones), self.zone_ns(*zones, size)))
            for link, time in uses:
                loads[link] = loads.get(link, Fraction(0)) + time
        return loads

    def transfer_ns(self, copies: Sequence[Copy], layer_bytes: Sequence[int]) -> int:
        """Time until all copies have arrived, rounded up; 0 without any."""
        if not copies:
            return 0
        return ceil(max(self.loads_ns(copies, layer_bytes).values())) + self.latency_ns


def ns_per_byte(bandwidth_bytes_per_s: float) -> Fraction:
    """Time of a byte, exactly."""
    return Fraction(1_000_000_000) / Fraction(bandwidth_bytes_per_s)
