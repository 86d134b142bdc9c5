"""What limits a switch: GPUs' own ports, links into nodes and out of them, links between zones.

A GPU sends and receives all its bytes, also those of other nodes, through a port as quick as its
link inside the node. All flows run at constant rates from begin to end, forwarded bytes behind
those that come in: then the time is that of the busiest port or link, which no schedule beats.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Cluster
from formulations.switching.seats import first_gpus
from formulations.transition import Links, ns_per_byte
from formulations.units import ceil_ns

Numbers = NDArray[np.int64]


class Line(NamedTuple):
    """A port of a GPU, a link of a node, or the link from one zone to another."""

    what: Literal["send", "receive", "out", "in", "zone"]
    first: int  #: number of the GPU, node or zone
    second: int = 0  #: of the zone to which it leads


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
        own = [ns_per_byte(g.intra_node.bandwidth_bytes_per_s) for g in groups]
        port = [own[cluster.node_groups[node]] for node in self.node_of]
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
        own = self._out + source, self._out + nodes + target
        if zones[0] == zones[1]:
            return own
        return *own, self._out + 2 * nodes + zones[0] * self._zones + zones[1]

    def loads(self, hops: Numbers) -> list[int]:
        """Bytes by line of copies [from, to, bytes] between GPUs."""
        loads = np.zeros(len(self.lines), dtype=np.int64)
        source, target, size = hops.T
        np.add.at(loads, source, size)
        np.add.at(loads, self.num_gpus + target, size)
        node, zone = np.array(self.node_of), np.array(self._zone_of)
        crosses = node[source] != node[target]
        out, into, size = node[source][crosses], node[target][crosses], size[crosses]
        np.add.at(loads, self._out + out, size)
        np.add.at(loads, self._out + len(zone) + into, size)
        pair, between = zone[out] * self._zones + zone[into], zone[out] != zone[into]
        np.add.at(loads, self._out + 2 * len(zone) + pair[between], size[between])
        found: list[int] = loads.tolist()
        return found

    def busiest_ns(self, loads: Sequence[int]) -> Fraction:
        """Time of the busiest port or link; loads: bytes by line."""
        used = zip(loads, self.ns_per_byte, strict=True)
        return max((load * rate for load, rate in used if load), default=Fraction(0))
