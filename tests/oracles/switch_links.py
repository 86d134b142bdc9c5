"""Time on ports and links in a switch, with lines by name."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from formulations.instance import Cluster, Link
from formulations.units import ceil_ns

#: What, where, and for a link between zones to where.
Line = tuple[str, str, str | None]
Hop = tuple[str, Sequence[str], int]  #: from a GPU to each of some others, bytes


@dataclass(frozen=True)
class Need:
    """GPUs of a node that need a class of so many bytes, which the owners have."""

    number: int
    owners: tuple[str, ...]
    node: str
    receivers: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True)
class Loads:
    """Bytes of copies.

    ports: by GPU, sent inside the node and between nodes, received inside and between. pairs: from
    one node to another.
    """

    ports: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * 4))
    pairs: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


class Network:
    """Nodes of GPUs by name, and the time of a byte on every port and link."""

    def __init__(self, cluster: Cluster) -> None:
        self._group = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
        self._cluster = cluster
        self.node_of = {
            f"{node}:{gpu}": node
            for node, j in self._group.items()
            for gpu in range(cluster.groups[j].gpus_per_node)
        }
        self._place = {gpu: n for n, gpu in enumerate(self.node_of)}
        self.ns_per_byte = cache(self._ns_per_byte)
        self.way, self.way_from = cache(self._way), cache(self._way_from)

    def mask(self, gpus: Iterable[str]) -> int:
        """A bit for each."""
        found = 0
        for gpu in gpus:
            found |= 1 << self._place[gpu]
        return found

    def _ns_per_byte(self, line: Line) -> Fraction:
        """Time of a byte; KeyError for a line that does not exist."""
        what, at, to = line
        if what in ("send", "receive"):
            link: Link = self._cluster.groups[self._group[self.node_of[at]]].intra_node
        elif what in ("out", "in"):
            link = self._cluster.groups[self._group[at]].inter_node
        elif at == to or not {at, to} <= self._zones():
            raise KeyError(line)
        else:
            link = self._cluster.link_between(at, to)
        return Fraction(10**9) / Fraction(link.bandwidth_bytes_per_s)

    def _zones(self) -> set[str | None]:
        return {group.zone for group in self._cluster.groups}

    def _way(self, one: str, two: str) -> list[Line]:
        """Links between two nodes."""
        if one == two:
            return []
        zones = [self._cluster.groups[self._group[node]].zone for node in (one, two)]
        found: list[Line] = [("out", one, None), ("in", two, None)]
        if zones[0] is not None and zones[0] != zones[1]:
            found.append(("zone", zones[0], zones[1]))
        return found

    def _way_from(self, source: str, node: str) -> list[Line]:
        """From a GPU to a node: what more share before its own port."""
        return [*self.way(self.node_of[source], node), ("send", source, None)]

    def loads(self, hops: Iterable[Hop]) -> Loads:
        """Of all copies."""
        found, node_of = Loads(), self.node_of
        for source, gpus, size in hops:
            own, sent = node_of[source], found.ports[source]
            for gpu in gpus:
                node = node_of[gpu]
                between = node != own
                sent[between] += size
                found.ports[gpu][2 + between] += size
                if between:
                    found.pairs[own, node] += size
        return found

    def busiest_ns(self, loads: Loads) -> Fraction:
        """Time of the port or link with most to do."""
        found: dict[Line, int] = defaultdict(int)
        for gpu, (sent, sent_between, received, received_between) in loads.ports.items():
            found["send", gpu, None] = sent + sent_between
            found["receive", gpu, None] = received + received_between
        for pair, size in loads.pairs.items():
            for line in self.way(*pair):
                found[line] += size
        return self.longest_ns(found)

    def longest_ns(self, bytes_of: dict[Line, int]) -> Fraction:
        """The longest time of lines with so many bytes."""
        times = (size * self.ns_per_byte(line) for line, size in bytes_of.items())
        return max(times, default=Fraction(0))

    def start_ns(self, needs: Iterable[Need]) -> int:
        """Start-up: inside a node, and between nodes where owners or receivers have several."""
        gpus = {gpu for own in {need.owners for need in needs} for gpu in own}
        groups = self._cluster.groups
        zones = self._cluster.links_among(range(len(groups)))
        inside_ns = ceil_ns(max(group.intra_node.latency_s for group in groups))
        between_s = max(group.inter_node.latency_s for group in groups)
        between_ns = ceil_ns(between_s + max((one.latency_s for one in zones), default=0.0))
        nodes = {self.node_of[gpu] for gpu in gpus} | {need.node for need in needs}
        return (inside_ns if nodes else 0) + (between_ns if len(nodes) > 1 else 0)
