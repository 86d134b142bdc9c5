"""Who may send what to whom in a switch, how long that takes, and what no switch is quicker than.

Sets. Classes of slices; demands: a class and the GPUs of one node that need it; channels: GPUs' own
ports, links into nodes and out of them, links between zones.
Decisions. For every byte of a demand: an owner sends it to each of the GPUs, or to one of them, the
*via*, which forwards it to the others. So it enters the node once, or once for each GPU.
Objective. The time of the busiest channel, and start-up, alike for all plans. A GPU sends and
receives all its bytes, also those of other nodes, through a port as quick as its link inside the
node. All flows run at constant rates from begin to end, forwarded bytes behind those that come in:
then no schedule beats the time of the busiest channel.
Assumptions. A class can be divided between elements. No node passes a slice on to another node.
What a GPU needs and holds stays where it is, at no cost.

Bound: the busiest channel, or several that share a load. Proof. Channels together carry no more in
a time than the sum of their rates allows (1). Every GPU receives what it needs, through its port
(2). One copy of a demand comes from an owner: over the channels that the paths from all owners have
in common (3), and over one of `slowest`, the slowest channel of each path; for such a set it counts
once, by its slowest common channel where that is one of the set, else where `slowest` is the set
(4).

Published rule, for comparison (Ge et al., HotSPa, SOSP 2024, section 5). Slice by slice and GPU by
GPU: an owner on the same node that has sent least inside nodes so far; where there is none, the
owner that has sent least between nodes. Every GPU is sent its own copy. Slices that have one owner
to come from are counted before all others.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import groupby, product
from math import ceil
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from formulations.instance import Cluster, Workload
from formulations.instance.record import Bytes, Index
from formulations.lengths.problem import STRICT
from formulations.switching.shards import Kind, Layout, SliceClass, first_gpus, slice_classes
from formulations.transition import Links, ns_per_byte
from formulations.units import ceil_ns


@dataclass(frozen=True, slots=True)
class Line:
    """A port of a GPU, a link of a node, or the link from one zone to another."""

    __pydantic_config__ = STRICT

    what: Literal["send", "receive", "out", "in", "zone"]
    first: Index  #: number of the GPU, node or zone
    second: Index = 0  #: of the zone to which it leads


class Network:
    """Ports and links of a cluster by number, with the time of a byte on each."""

    def __init__(self, cluster: Cluster) -> None:
        links, groups = Links(cluster), cluster.groups
        first, nodes = first_gpus(cluster), range(len(cluster.node_groups))
        self.node_of = [n for n in nodes for _ in range(first[n], first[n + 1])]
        self.num_gpus, self._zone_of = len(self.node_of), links.zone_of
        self._zones, self._out = len(set(links.zone_of)), 2 * self.num_gpus
        gpus, zones = range(self.num_gpus), range(self._zones)
        self.lines = [
            *(Line("send", gpu) for gpu in gpus),
            *(Line("receive", gpu) for gpu in gpus),
            *(Line("out", node) for node in nodes),
            *(Line("in", node) for node in nodes),
            *(Line("zone", a, b) for a, b in product(zones, zones)),
        ]
        inside = [ns_per_byte(g.intra_node.bandwidth_bytes_per_s) for g in groups]
        port = [inside[cluster.node_groups[node]] for node in self.node_of]
        node = [links.node_ns(n, 1) for n in nodes]
        pairs = product(zones, zones)
        zone = [links.zone_ns(a, b, 1) if a != b else Fraction(0) for a, b in pairs]
        self.ns_per_byte = [*port, *port, *node, *node, *zone]
        self.inside_latency_ns = ceil_ns(max(g.intra_node.latency_s for g in groups))
        self.between_latency_ns = links.latency_ns

    def receives(self, gpu: int) -> int:
        """Number of the port through which a GPU receives; that through which it sends is its."""
        return self.num_gpus + gpu

    def between(self, source: int, target: int) -> tuple[int, ...]:
        """Links from node to node; none inside a node."""
        if source == target:
            return ()
        nodes, zones = len(self._zone_of), (self._zone_of[source], self._zone_of[target])
        links = self._out + source, self._out + nodes + target
        if zones[0] == zones[1]:
            return links
        return *links, self._out + 2 * nodes + zones[0] * self._zones + zones[1]


@dataclass(frozen=True, slots=True)
class Sending:
    """Bytes [begin, end) of a class from an owner to GPUs.

    via: the one of them that gets it from the owner and forwards it to the others, of its node;
    None if the owner sends to each.
    """

    __pydantic_config__ = STRICT

    number: Index  #: of the class
    begin: Bytes
    end: Bytes
    source: Index
    via: Index | None
    receivers: Annotated[tuple[Index, ...], Field(min_length=1)]

    def hops(self) -> Iterator[tuple[int, int]]:
        """(from, to) of every copy that is sent."""
        if self.via is None:
            yield from ((self.source, gpu) for gpu in self.receivers)
            return
        yield self.source, self.via
        yield from ((self.via, gpu) for gpu in self.receivers if gpu != self.via)


class Demand(NamedTuple):
    """A class that GPUs of one node need; near: owners on the same node."""

    number: int  #: of the class
    node: int
    receivers: tuple[int, ...]
    owners: tuple[int, ...]
    near: tuple[int, ...]
    size_bytes: int

    @property
    def senders(self) -> tuple[int, ...]:
        """Owners that are asked first: those near, where there are any."""
        return self.near or self.owners

    @property
    def is_free(self) -> bool:
        """Whether there is a choice among them, or of who forwards."""
        return len(self.senders) > 1 or len(self.receivers) > 1

    def direct(self) -> Sending:
        """All of it from the first of them to each receiver."""
        return Sending(self.number, 0, self.size_bytes, self.senders[0], None, self.receivers)


@dataclass(frozen=True, slots=True)
class Volumes:
    """Bytes that a GPU sends and receives inside its node and between nodes."""

    __pydantic_config__ = STRICT

    gpu: Index
    sent_inside_bytes: Bytes = 0
    sent_between_bytes: Bytes = 0
    received_inside_bytes: Bytes = 0
    received_between_bytes: Bytes = 0


@dataclass(frozen=True)
class Switch:
    """What has to move, and over what."""

    network: Network
    classes: tuple[SliceClass, ...]

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """Every class by the nodes that need it."""
        demands, node_of = [], self.network.node_of
        for number, slices in enumerate(self.classes):
            owners, size = slices.owners, slices.size_bytes
            near = {node: tuple(gpus) for node, gpus in groupby(owners, node_of.__getitem__)}
            for node, gpus in groupby(slices.needers, node_of.__getitem__):
                demand = Demand(number, node, tuple(gpus), owners, near.get(node, ()), size)
                demands.append(demand)
        return tuple(demands)

    def loads(self, sendings: Iterable[Sending]) -> list[int]:
        """Bytes on every port and link."""
        network, loads = self.network, [0] * len(self.network.lines)
        for sending in sendings:
            size = sending.end - sending.begin
            for source, target in sending.hops():
                nodes = network.node_of[source], network.node_of[target]
                for line in (source, network.receives(target), *network.between(*nodes)):
                    loads[line] += size
        return loads

    def volumes(self, sendings: Iterable[Sending]) -> tuple[Volumes, ...]:
        """Of every GPU that sends or receives."""
        node_of, volumes = self.network.node_of, dict[int, list[int]]()
        for sending in sendings:
            for source, target in sending.hops():
                between, size = node_of[source] != node_of[target], sending.end - sending.begin
                volumes.setdefault(source, [0] * 4)[between] += size
                volumes.setdefault(target, [0] * 4)[2 + between] += size
        return tuple(Volumes(gpu, *sizes) for gpu, sizes in sorted(volumes.items()))

    @cached_property
    def latency_ns(self) -> int:
        """Start-up of the longest way that a slice may go: between nodes, then inside one."""
        if not self.demands:
            return 0
        nodes = {self.network.node_of[gpu] for demand in self.demands for gpu in demand.owners}
        crosses = len(nodes | {demand.node for demand in self.demands}) > 1
        return self.network.inside_latency_ns + crosses * self.network.between_latency_ns

    def time_ns(self, sendings: Iterable[Sending]) -> int:
        """Time until everything has arrived, rounded up: that of the busiest port or link."""
        used = zip(self.loads(sendings), self.network.ns_per_byte, strict=True)
        busiest_ns = max((load * rate for load, rate in used if load), default=Fraction(0))
        return ceil(busiest_ns) + self.latency_ns


def switch_of(
    cluster: Cluster, workload: Workload, before: Layout, after: Layout, kinds: Sequence[Kind]
) -> Switch:
    """What has to move of some kinds from one layout to another."""
    return Switch(Network(cluster), slice_classes(workload, before, after, kinds))


@dataclass(frozen=True)
class PortBound:
    """No plan is quicker, start-up included; the channels that show it."""

    time_ns: int
    channels: tuple[Line, ...] = ()


def port_bound(switch: Switch) -> PortBound:
    """The bound of the module; 0 where nothing moves."""
    if not switch.demands:
        return PortBound(0)
    network = switch.network
    rates = network.ns_per_byte
    loads = [0] * len(rates)  # bytes that each channel carries at least
    alone: dict[int, int] = defaultdict(int)  # of demands, by their slowest common channel
    together: dict[frozenset[int], int] = defaultdict(int)
    for demand in switch.demands:
        for gpu in demand.receivers:
            loads[network.receives(gpu)] += demand.size_bytes  # (2)
        # from every owner to the node, its own port first
        paths = [
            (owner, *network.between(network.node_of[owner], demand.node))
            for owner in demand.owners
        ]
        common = set.intersection(*map(set, paths))
        for channel in common:
            loads[channel] += demand.size_bytes  # (3)
        slowest = frozenset(max(path, key=rates.__getitem__) for path in paths)
        bottleneck = max(common, key=rates.__getitem__, default=None)
        if bottleneck is not None:
            alone[bottleneck] += demand.size_bytes
        if bottleneck not in slowest:
            together[slowest] += demand.size_bytes  # (4)
    times: dict[tuple[int, ...], Fraction] = {
        (channel,): load * rates[channel] for channel, load in enumerate(loads) if load
    }
    for channels, size in together.items():  # (1)
        load = size + sum(alone[channel] for channel in channels)
        together_ns = load / sum((1 / rates[channel] for channel in channels), Fraction(0))
        times[tuple(sorted(channels))] = together_ns
    best = max(times, key=times.__getitem__)
    shown = tuple(network.lines[channel] for channel in best)
    return PortBound(ceil(times[best]) + switch.latency_ns, shown)


def published_plan(switch: Switch) -> list[Sending]:
    """Sendings of the published rule, layer by layer."""
    inside, between = ([0] * switch.network.num_gpus for _ in range(2))
    sendings, free = list[Sending](), dict[int, list[Demand]]()
    for demand in switch.demands:
        if len(demand.senders) > 1:
            free.setdefault(demand.number, []).append(demand)
            continue
        sendings.append(demand.direct())
        sent = inside if demand.near else between
        sent[demand.senders[0]] += demand.size_bytes * len(demand.receivers)
    slices = []  # layer, class, first byte in the class and size
    for number in free:
        begin = 0
        for piece in switch.classes[number].slices:
            for layer in range(*piece.layers):
                slices.append((layer, number, begin, piece.size_bytes))
                begin += piece.size_bytes
    for _, number, begin, size in sorted(slices):
        for demand in free[number]:
            sent = inside if demand.near else between
            for gpu in demand.receivers:
                source = min(demand.senders, key=sent.__getitem__)
                sent[source] += size
                sendings.append(Sending(number, begin, begin + size, source, None, (gpu,)))
    return sendings
