"""Time on ports and links in a switch, and what prices of them show, with lines by name."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from formulations.instance import Cluster, Link
from formulations.units import ceil_ns
from solver.switch_document import PriceDocument, SendingDocument

#: What, where, and for a link between zones to where.
Line = tuple[str, str, str | None]
Hop = tuple[str, str, int]  #: from GPU to GPU, bytes


@dataclass(frozen=True)
class Need:
    """GPUs of a node that need a class of so many bytes, which the owners have."""

    number: int
    owners: frozenset[str]
    node: str
    receivers: frozenset[str]
    size_bytes: int


def hops_of(one: SendingDocument) -> Iterator[Hop]:
    """Copies that a sending makes."""
    first, size = one.source if one.via is None else one.via, one.end - one.begin
    for gpu in one.receivers:
        yield one.source if gpu == one.via else first, gpu, size


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

    def ns_per_byte(self, line: Line) -> Fraction:
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

    def way(self, source: str, target: str) -> list[Line]:
        """Links between the nodes of two GPUs."""
        one, two = self.node_of[source], self.node_of[target]
        if one == two:
            return []
        zones = [self._cluster.groups[self._group[node]].zone for node in (one, two)]
        found: list[Line] = [("out", one, None), ("in", two, None)]
        if zones[0] is not None and zones[0] != zones[1]:
            found.append(("zone", zones[0], zones[1]))
        return found

    def busiest_ns(self, hops: Iterable[Hop]) -> Fraction:
        """Time of the port or link with most to do."""
        found: dict[Line, int] = defaultdict(int)
        for source, target, size in hops:
            ends: list[Line] = [("send", source, None), ("receive", target, None)]
            for line in (*ends, *self.way(source, target)):
                found[line] += size
        times = (size * self.ns_per_byte(line) for line, size in found.items())
        return max(times, default=Fraction(0))

    def start_ns(self, needs: Iterable[Need]) -> int:
        """Start-up: inside a node, and between nodes where owners or receivers have several."""
        gpus = {gpu for need in needs for gpu in need.owners | need.receivers}
        groups = self._cluster.groups
        zones = self._cluster.links_among(range(len(groups)))
        inside_ns = ceil_ns(max(group.intra_node.latency_s for group in groups))
        between_s = max(group.inter_node.latency_s for group in groups)
        between_ns = ceil_ns(between_s + max((one.latency_s for one in zones), default=0.0))
        nodes = {self.node_of[gpu] for gpu in gpus}
        return (inside_ns if nodes else 0) + (between_ns if len(nodes) > 1 else 0)

    def least_ns(self, needs: Iterable[Need], prices: Iterable[PriceDocument]) -> Fraction:
        """What no plan goes below, without start-up.

        Proof. The longest time of a line is no less than the mean of all by weights, the prices;
        and of that mean each need adds no less than on its cheapest way: one copy from an owner,
        the others from an owner or from a GPU of the node that has got one.
        """
        costs: dict[Line, Fraction] = defaultdict(Fraction)
        total = 0
        for one in prices:
            line = one.line, one.at, one.to
            costs[line] += one.price * self.ns_per_byte(line)
            total += one.price
        return sum((self._cheapest(need, costs) for need in needs), Fraction(0)) / total

    def _cheapest(self, need: Need, costs: Mapping[Line, Fraction]) -> Fraction:
        zero, target = Fraction(0), next(iter(need.receivers))
        from_nodes: dict[str, Fraction] = {}
        for owner in need.owners:
            port = costs.get(("send", owner, None), zero)
            node = self.node_of[owner]
            from_nodes[node] = min(port, from_nodes.get(node, port))
        some = {self.node_of[owner]: owner for owner in need.owners}
        enter = min(
            port + sum(costs.get(line, zero) for line in self.way(some[node], target))
            for node, port in from_nodes.items()
        )
        passed = min(enter, *(costs.get(("send", gpu, None), zero) for gpu in need.receivers))
        ports = sum(costs.get(("receive", gpu, None), zero) for gpu in need.receivers)
        return need.size_bytes * (ports + enter + (len(need.receivers) - 1) * passed)
