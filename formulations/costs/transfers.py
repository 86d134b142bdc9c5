"""One message, or the lanes of a tied matrix, over one link; alike for all node orders.

What crossing between zones costs, beside what each node's own link costs: see `placement`.

One link joins each pair of zones, with its own bandwidth and latency. On it

* the flows of one stage boundary from zone y to zone z share the bandwidth of that direction, as
  those do that leave one node; a transfer takes as long as the slowest link on its way;
* the ring between the nodes of a stage goes zone by zone and back to the first, in which order is
  not known. Between two zones it passes once at most, with each node's whole buffer, for each of
  the tp lanes; with four zones or more it is taken to pass between any two, which no order exceeds.
  Rings have no fixed direction, so the rings of all stages in y and z share the link between them,
  whatever else they visit. Time per byte, at the ring's efficiency, is that of the slowest of its
  links with what shares it, and start-up the longest;
* the lanes of the tied matrix with one end in y and the other in z share it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s
from formulations.costs.sharding import lanes_like, message_lanes, tied_lanes, widest_group
from formulations.costs.tables import CostTables
from formulations.instance import Link, ZoneLink
from formulations.units import ceil_ns


def _inside_s(tables: CostTables, j: int, tensors: int) -> float:
    group, degrees = tables.instance.cluster.groups[j], tables.config.degrees[j]
    link = group.tensor_link(degrees.tp)
    return tensors * tables.send_bytes[j] / link.bandwidth_bytes_per_s + link.latency_s


def inside_ns(tables: CostTables, j: int, tensors: int) -> int:
    """One message between two slots of a node of group j."""
    return ceil_ns(_inside_s(tables, j, tensors))


def message_bytes(tables: CostTables, j: int, tensors: int, widest: int) -> int:
    """What the GPUs of a slot of group j send or get of one message from node to node."""
    lanes = message_lanes(tables.instance, tables.config.degrees[j], widest)
    return lanes * tensors * tables.send_bytes[j]


def outside_ns(
    tables: CostTables, j: int, flows: int, link: Link, tensors: int, widest: int | None = None
) -> int:
    """One message from or to a node of group j, with `flows` replicas sharing the link.

    With scatter and gather the parts are gathered over the links inside the node. widest: GPUs of
    the largest tensor group; of the configuration if not given.
    """
    degrees, widest = tables.config.degrees[j], widest or tables.config.widest_tp
    size_bytes = message_bytes(tables, j, tensors, widest) * flows
    outside_s = size_bytes / link.bandwidth_bytes_per_s + link.latency_s
    gathers = tables.instance.gathers_messages(degrees.tp) and degrees.tp > 1
    return ceil_ns(
        outside_s + (_inside_s(tables, j, tensors) * (degrees.tp - 1) if gathers else 0.0)
    )


def embedding_ns(tables: CostTables, j: int, lanes: int, link: Link) -> int:
    """All-reduce of the tied matrix by GPUs of group j, `lanes` of which share the link."""
    if not tables.tied:
        return 0
    latency_s = ring_latency_s(ALL_REDUCE, 2, link.latency_s)
    return ceil_ns(lanes * tables.embedding_bytes[j] / link.bandwidth_bytes_per_s + latency_s)


Pair = tuple[int, int]  #: two zones, by number


class RingRate(NamedTuple):
    """Seconds per byte of the buffers of a node group: of those whose lanes hold as much."""

    s_per_byte: float
    group: int


ZoneRing = tuple[RingRate, float]  #: of a link between zones, with its latency in s


def neighbours(zones: Sequence[int]) -> set[Pair]:
    """Pairs y < z of zones between which a ring may pass that visits all of `zones`."""
    return set(combinations(sorted(set(zones)), 2))


class ZoneTerms:
    """Costs of the links between zones for one configuration; groups are given by number."""

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self.zone_of_group = tables.instance.cluster.zone_of_group

    def link(self, pair: Pair) -> ZoneLink:
        """The link between two zones."""
        cluster = self.tables.instance.cluster
        return cluster.link_between(*(cluster.zones[zone] for zone in pair))

    def send_ns(self, i: int, j: int, flows: int) -> tuple[int, ...]:
        """[K] messages between nodes of groups i and j of different zones."""
        link = self.link((self.zone_of_group[i], self.zone_of_group[j]))
        return tuple(
            max(outside_ns(self.tables, end, flows, link, n) for end in (i, j))
            for n in self.tables.tensors
        )

    def sends_ns(
        self, before: Sequence[int], after: Sequence[int], width: int = 1
    ) -> list[tuple[int, ...]]:
        """[N][K] messages of `width` replicas each from group to group; 0 inside a zone.

        All that go from one zone to another share the link between them.
        """
        zone, none = self.zone_of_group, (0,) * len(self.tables.tensors)
        flows = Counter((zone[i], zone[j]) for i, j in zip(before, after, strict=True))
        if all(y == z for y, z in flows):
            return [none] * len(before)
        return [
            self.send_ns(i, j, flows[zone[i], zone[j]] * width) if zone[i] != zone[j] else none
            for i, j in zip(before, after, strict=True)
        ]

    def ring_rate(self, pair: Pair, stages: int) -> RingRate:
        """Of a link that the rings of so many stages share, each as wide as the widest used."""
        widest = widest_group(self.tables.config)
        lanes = self.tables.config.degrees[widest].tp * stages
        s_per_byte = lanes / self.link(pair).bandwidth_bytes_per_s
        return RingRate(s_per_byte, lanes_like(self.tables.config, widest))

    def ring(self, rings: Mapping[Pair, int]) -> ZoneRing:
        """Of a ring that passes between these zones, each with how many stages' rings do."""
        slowest = max(self.ring_rate(pair, stages) for pair, stages in rings.items())
        return slowest, max(self.link(pair).latency_s for pair in rings)

    def embedding_ns(self, pair: Pair, replicas: int) -> int:
        """All-reduce of the tied matrix, with so many replicas' lanes on the link."""
        tables, link = self.tables, self.link(pair)
        return max(
            embedding_ns(tables, j, tied_lanes(tables.config, j) * replicas, link)
            for j in tables.config.groups_used
        )


class ZoneCrossings:
    """What crosses between zones in one order; `slots`: node group of every slot."""

    def __init__(self, terms: ZoneTerms, slots: Sequence[int]) -> None:
        config, zone = terms.tables.config, terms.zone_of_group
        self.terms = terms
        self.stages = [slots[k * config.dp : (k + 1) * config.dp] for k in range(config.pp)]
        self.zones = [[zone[j] for j in stage] for stage in self.stages]
        self.rings = Counter(pair for zones in self.zones for pair in neighbours(zones))

    def sends_ns(self, k: int) -> list[tuple[int, ...]]:
        """[dp][K] messages from stage k to the next as the links between zones allow; 0 inside.

        The last stage sends to the first, where slots have several chunks.
        """
        return self.terms.sends_ns(self.stages[k], self.stages[(k + 1) % len(self.stages)])

    def ring(self, k: int) -> ZoneRing | None:
        """Rate and latency of the slowest links between zones of stage k's ring."""
        pairs = neighbours(self.zones[k])
        return self.terms.ring({pair: self.rings[pair] for pair in pairs}) if pairs else None

    def embedding_ns(self) -> int:
        """All-reduce of the tied matrix as the links between zones allow; 0 if none crosses."""
        pairs = zip(self.zones[0], self.zones[-1], strict=True)
        lanes = Counter((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
        return max((self.terms.embedding_ns(*shared) for shared in lanes.items()), default=0)
