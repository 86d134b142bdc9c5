"""What a node order costs: transfers, gradient sync and the tied-embedding all-reduce.

Slots are groups of GPUs in rank order; slot k * dp + r runs stage k of replica r. A node
of group j that starts at slot a covers slots [a, a + c_j). Every term below is a maximum over
nodes of something that depends on (j, a) alone, or, for the inter-node part of the sync, also
on the number of nodes that the stage spans. `NodeTerms` holds those; `Placer.costs` takes the
maxima for one order, the models choose among them. Where the cluster has zones, the maxima are
also over the links between zones, whose terms depend on pairs of slots: `zones`.

Bandwidth sharing: flows of one stage boundary and direction that leave (or enter) the same node
share its link, and so do the tp rings of all stages that span the node's border
(Hwang et al., FASOP, HPDC 2024, section 3.3: count the rings that cross a link). Links inside a
node that are shared (`Link.shared`) have all rings of the node, of whatever stage.
Collectives over several nodes are hierarchical: a ring inside every node, then rings of equal
shares between nodes, which together carry each node's whole buffer over its link.
Shard groups (`Configuration.optimizer_instances`) reduce-scatter gradients and gather parameters
as stages of so many replicas would. Between them every GPU all-reduces its shard, hierarchically
too, with those that have the same one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s, ring_share, wire_ns
from formulations.costs.sharding import (
    epilogue_factors,
    lanes_like,
    reducing,
    ring_nodes,
    shard_bytes,
    tied_lanes,
)
from formulations.costs.tables import Array, CostTables
from formulations.costs.transfers import (
    RingRate,
    ZoneCrossings,
    ZoneRing,
    ZoneTerms,
    embedding_ns,
    inside_ns,
    outside_ns,
)
from formulations.plan import Configuration
from formulations.units import ceil_div, ceil_ns


@dataclass(frozen=True)
class NodeRings:
    """Rings of stages k through a node.

    inside[k], latency_s[k]: inside the node, for factor 1. outside[k]: rate of the node's link at
    efficiency 1, factor 1, before the (N - 1) / N share; only where they leave the node. ranks[k]:
    of a ring, on the node.
    """

    ranks: dict[int, int]
    inside: dict[int, RingRate]
    latency_s: dict[int, float]
    outside: dict[int, RingRate]


@dataclass(frozen=True)
class NodeTerms:
    """Costs that one node brings by starting at one slot; keys are slots or stages.

    send_ns[s]: [K] messages between slot s and s + dp, as far as this node's links decide them.
    rings: of shard groups; across: of equal shards between them. embedding_ns: this node's share.
    """

    send_ns: dict[int, tuple[int, ...]]
    rings: NodeRings
    across: NodeRings | None
    embedding_ns: int


@dataclass(frozen=True)
class PlacementCosts:
    """Costs of one node order, ns. S slots, p stages, L layers.

    group_of_slot: [S] node group. send_ns: [K, p - 1, dp] by kind of message
    (`CostTables.tensors`), ascending, forward and backward alike; with several chunks per slot
    [K, p, dp], as the last stage sends to the first.
    sync_ns, gather_ns: [p, L] gradient sync before, parameter gather after the optimizer, if the
    layer lies on the stage; *_latency_ns: [p], added once. embedding_ns: tied embeddings.
    """

    group_of_slot: Array
    send_ns: Array
    sync_ns: Array
    sync_latency_ns: Array
    gather_ns: Array
    gather_latency_ns: Array
    embedding_ns: int


def num_boundaries(config: Configuration) -> int:
    """Stage boundaries; with several chunks per slot also that from the last stage to the first."""
    return config.pp - (config.vpp == 1)


def _sends(tables: CostTables, j: int, start: int) -> dict[int, tuple[int, ...]]:
    """Messages from slot s to slot s + dp, in a circle, that begin or end on the node."""
    dp, total = tables.config.dp, tables.config.slots
    link = tables.instance.cluster.groups[j].inter_node
    slots = range(start, start + tables.slots_per_node[j])
    begun = {s for s in slots if s // dp < num_boundaries(tables.config)}
    ended = {s for t in slots if (s := (t - dp) % total) // dp < num_boundaries(tables.config)}
    inside = tuple(inside_ns(tables, j, n) for n in tables.tensors)
    terms = dict.fromkeys(begun & ended, inside)
    for crossing in (begun - ended, ended - begun):
        flows = Counter(s // dp for s in crossing)
        terms |= {
            s: tuple(outside_ns(tables, j, flows[s // dp], link, n) for n in tables.tensors)
            for s in crossing
        }
    return terms


def _embedding_ns(tables: CostTables, j: int, start: int) -> int:
    """Lanes between slot r and slot (p - 1) dp + r; those inside one node do not cross."""
    config, group = tables.config, tables.instance.cluster.groups[j]
    stop, last = start + tables.slots_per_node[j], (config.pp - 1) * config.dp
    first = range(start, min(stop, config.dp))
    second = range(max(start - last, 0), stop - last)
    within = len(range(max(first.start, second.start), min(first.stop, second.stop)))
    crossing = len(first) + len(second) - 2 * within
    lanes = tied_lanes(config, j) * crossing
    across = embedding_ns(tables, j, lanes, group.inter_node) if crossing else 0
    return max(across, embedding_ns(tables, j, 1, group.intra_node) if within else 0)


Slowest = tuple[tuple[RingRate, ...], float, tuple[RingRate, ...]]  #: inside, start-up, between


def _slowest_rings(rings: Sequence[NodeRings], k: int, zones: ZoneRing | None = None) -> Slowest:
    """Of stage k on nodes and between zones."""
    between = [node.outside[k] for node in rings if k in node.outside]
    between += [] if zones is None else [zones[0]]
    inside_s = max(node.latency_s[k] for node in rings)
    return _slowest(node.inside[k] for node in rings), inside_s, _slowest(between)


def _slowest(rates: Iterable[RingRate]) -> tuple[RingRate, ...]:
    """Of rates for equal buffers the largest, ascending by buffers."""
    slowest: dict[int, float] = {}
    for s_per_byte, group in rates:
        slowest[group] = max(s_per_byte, slowest.get(group, 0.0))
    return tuple(RingRate(slowest[group], group) for group in sorted(slowest))


@dataclass(frozen=True, eq=False)
class SyncPhase:
    """A collective over a stage's replicas and their parts: of gradients, or of parameters.

    ring_nodes: of a stage on so many nodes, those that a ring visits. across: is it one of equal
    shards, and not of shard groups?
    """

    factor: float  #: ALL_REDUCE, HALF or 0, times the share that is seen
    size_bytes: Array  #: [L, J]
    experts_ns: Array  #: [L] the same of experts that ep GPUs share, wherever a stage lies
    ring_nodes: Callable[[int], int]
    efficiency: Callable[[int], float]
    across: bool = False

    def rings(self, node: NodeTerms) -> NodeRings:
        """Those of a node."""
        rings = node.across if self.across else node.rings
        assert rings is not None  # as there is such a phase
        return rings

    def inside_ns(self, rate: RingRate) -> Array:
        """[L] ring inside the nodes, and those of experts."""
        wire = wire_ns(self.size_bytes[:, rate.group], self.factor * rate.s_per_byte)
        return wire + self.experts_ns

    def outside_ns(self, rate: RingRate, num_nodes: int) -> Array:
        """[L] ring between the nodes of a stage on `num_nodes`."""
        nodes = self.ring_nodes(num_nodes)
        s_per_byte = ring_share(self.factor, nodes) * rate.s_per_byte / self.efficiency(nodes)
        return wire_ns(self.size_bytes[:, rate.group], s_per_byte)

    def ring(self, num_nodes: int, slowest: Slowest, outside_s: float) -> tuple[Array, int]:
        """[L] the slowest rings of a stage on so many nodes, and their start-up."""
        inside, inside_s, between = slowest
        layers: Array = np.max([self.inside_ns(rate) for rate in inside], axis=0)
        if between:
            far = [self.outside_ns(rate, num_nodes) for rate in between]
            layers = layers + np.max(far, axis=0)
        return layers, self.latency_ns(inside_s, num_nodes, outside_s)

    def latency_ns(self, inside_s: float, num_nodes: int, outside_s: float) -> int:
        """Start-up of both rings; `inside_s` is for factor 1, `outside_s` one step."""
        return ceil_ns(self.factor * inside_s) + ceil_ns(
            ring_latency_s(self.factor, self.ring_nodes(num_nodes), outside_s)
        )


class Placer:
    """Placement costs of one configuration; terms of equal (node group, first slot) are kept."""

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self.zones = ZoneTerms(tables)
        self._terms: dict[tuple[int, int], NodeTerms] = {}
        #: By number of nodes, start-up between them, and the slowest rings.
        self._rings: dict[tuple[object, ...], tuple[Array, int, Array, int]] = {}
        config, overlap = tables.config, tables.instance.search.overlap
        factor, gather_factor = epilogue_factors(config, overlap)
        sync, gather = tables.expert_rings_ns(factor)
        efficiency = reducing(tables.instance, config).cluster.efficiency
        visited = partial(ring_nodes, tables.instance, config)
        self.sync = SyncPhase(factor, tables.gradient_bytes, sync, visited, efficiency)
        self.gather = self.across = None
        if gather_factor:
            rate = tables.instance.cluster.efficiency
            self.gather = SyncPhase(gather_factor, tables.parameter_bytes, gather, visited, rate)
        if config.optimizer_instances > 1:
            self.across = SyncPhase(
                factor=ALL_REDUCE * factor,  # each has a reduce-scatter before it
                size_bytes=shard_bytes(config, tables.gradient_bytes),
                experts_ns=np.zeros_like(sync),
                ring_nodes=partial(min, config.optimizer_instances),
                efficiency=efficiency,
                across=True,
            )

    def terms(self, j: int, start: int) -> NodeTerms:
        """Terms of a node of group j whose first slot is `start`."""
        if (j, start) in self._terms:
            return self._terms[j, start]
        tables, config = self.tables, self.tables.config
        degrees = config.degrees[j]
        stop = start + tables.slots_per_node[j]
        # Slots of the node by stage; those of stages that lie on other nodes too have a ring out
        slots = {
            k: min(stop, (k + 1) * config.dp) - max(start, k * config.dp)
            for k in range(start // config.dp, (stop - 1) // config.dp + 1)
        }
        leaving = [k for k, count in slots.items() if count < config.dp]
        size, copies = config.shard_replicas, degrees.copies
        sharing = {k: min(count, size) * copies for k, count in slots.items()}
        between = [k for k in leaving if sharing[k] < size * copies]
        across = None
        if config.optimizer_instances > 1:
            # as many rings as the node has GPUs of a shard group, each with one of every group
            groups = {k: ceil_div(count, size) for k, count in slots.items()}
            lanes = sum(degrees.tp * sharing[k] for k in leaving)
            across = self.rings_of(j, slots, groups, dict.fromkeys(leaving, lanes))
        lanes_between = dict.fromkeys(between, degrees.tp * len(between))
        self._terms[j, start] = NodeTerms(
            send_ns=_sends(tables, j, start),
            rings=self.rings_of(j, slots, sharing, lanes_between),
            across=across,
            embedding_ns=_embedding_ns(tables, j, start),
        )
        return self._terms[j, start]

    def rings_of(
        self, j: int, slots: dict[int, int], ranks: dict[int, int], lanes: dict[int, int]
    ) -> NodeRings:
        """Of a node of group j, by stage: slots on it, ranks of a ring on it, rings on its link."""
        group, like = self.tables.instance.cluster.groups[j], lanes_like(self.tables.config, j)
        degrees = self.tables.config.degrees[j]
        rings = sum(slots[k] * degrees.width // n for k, n in ranks.items() if n > 1)
        inside = group.copies_link(degrees.tp, rings)
        outside = group.inter_node
        return NodeRings(
            ranks=ranks,
            inside={
                k: RingRate(ring_share(1, n) / inside.bandwidth_bytes_per_s, like)
                for k, n in ranks.items()
            },
            latency_s={k: ring_latency_s(1, n, inside.latency_s) for k, n in ranks.items()},
            outside={
                k: RingRate(n / outside.bandwidth_bytes_per_s, like) for k, n in lanes.items()
            },
        )

    def costs(self, order: Sequence[int]) -> PlacementCosts:
        """Costs of the nodes of groups `order[0]`, `order[1]`, ... in node order."""
        tables, config = self.tables, self.tables.config
        slots: list[int] = []
        starts: list[int] = []
        for j in order:
            starts.append(len(slots))
            slots.extend([j] * tables.slots_per_node[j])
        nodes = [self.terms(j, start) for j, start in zip(order, starts, strict=True)]
        zones = ZoneCrossings(self.zones, slots)
        num_kinds = len(tables.tensors)
        # Messages: the slower of both ends, and of the links between zones
        rows = [zones.sends_ns(k) for k in range(num_boundaries(config))]
        send = np.array(rows, dtype=np.int64).reshape(-1, num_kinds)
        begun = np.array([s for node in nodes for s in node.send_ns], dtype=np.int64)
        times = [row for node in nodes for row in node.send_ns.values()]
        np.maximum.at(send, begun, np.array(times, dtype=np.int64).reshape(-1, num_kinds))
        spans: list[list[int]] = [[] for _ in range(config.pp)]
        for i, node in enumerate(nodes):
            for k in node.rings.inside:
                spans[k].append(i)
        stages = [
            self.stage(k, [nodes[i] for i in span], [order[i] for i in span], zones.ring(k))
            for k, span in enumerate(spans)
        ]
        return PlacementCosts(
            group_of_slot=np.array(slots, dtype=np.int64),
            send_ns=send.T.reshape(num_kinds, -1, config.dp),
            sync_ns=np.array([stage[0] for stage in stages]),
            sync_latency_ns=np.array([stage[1] for stage in stages], dtype=np.int64),
            gather_ns=np.array([stage[2] for stage in stages]),
            gather_latency_ns=np.array([stage[3] for stage in stages], dtype=np.int64),
            embedding_ns=max(zones.embedding_ns(), *(node.embedding_ns for node in nodes)),
        )

    def stage(
        self,
        k: int,
        nodes: Sequence[NodeTerms],
        groups: Sequence[int],
        zones: ZoneRing | None = None,
    ) -> tuple[Array, int, Array, int]:
        """Sync and gather of stage k over its nodes and their groups: [L] and start-up, twice.

        `zones`: of the links between its zones. What bytes take is the most of any node, layer by
        layer, inside nodes and between them.
        """
        cluster, n = self.tables.instance.cluster, len(nodes)
        outside_s = max(cluster.groups[j].inter_node.latency_s for j in set(groups))
        outside_s = outside_s if zones is None else max(outside_s, zones[1])
        slowest = _slowest_rings([node.rings for node in nodes], k, zones)
        across = [node.across for node in nodes if node.across]
        slowest_across = _slowest_rings(across, k) if across else None
        key = (n, outside_s, slowest, slowest_across)
        if key not in self._rings:
            sync = self.sync.ring(n, slowest, outside_s)
            gather = np.zeros_like(sync[0]), 0
            if self.gather is not None:
                gather = self.gather.ring(n, slowest, outside_s)
            if self.across is not None and slowest_across is not None:
                layers, start = self.across.ring(n, slowest_across, outside_s)
                sync = sync[0] + layers, sync[1] + start
            self._rings[key] = *sync, *gather
        return self._rings[key]
