"""What a switch moves, how long it takes at least, and by the published rule: layer by layer.

From docs/switching.md alone. GPUs are named NODE:NUMBER, shares of tensors are fractions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from math import ceil
from typing import NamedTuple

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from formulations.units import ceil_ns
from tests.oracles.held_parts import Holding, Holdings, Kind, sorts_of

#: What, where, and for a link between zones to where.
Line = tuple[str, str, str | None]
Gpus = tuple[int, ...]


class Need(NamedTuple):
    """GPUs of a node that need a class, which the owners have; layer and bytes of its slices."""

    owners: tuple[str, ...]
    node: str
    receivers: tuple[str, ...]
    slices: list[tuple[int, int]]

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.slices)


class Network:
    """Nodes of GPUs by name, and the time of a byte on every port and link."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._group = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
        self.node_of = {
            f"{node}:{gpu}": node
            for node, j in self._group.items()
            for gpu in range(cluster.groups[j].gpus_per_node)
        }

    def ns_per_byte(self, line: Line) -> Fraction:
        """Time of a byte; KeyError for a line that does not exist."""
        what, at, to = line
        groups = self._cluster.groups
        if what in ("send", "receive"):
            rate = groups[self._group[self.node_of[at]]].intra_node.bandwidth_bytes_per_s
        elif what in ("out", "in"):
            rate = groups[self._group[at]].inter_node.bandwidth_bytes_per_s
        elif at == to or not {at, to} <= {group.zone for group in groups}:
            raise KeyError(line)
        else:
            rate = self._cluster.link_between(at, to).bandwidth_bytes_per_s
        return Fraction(10**9) / Fraction(rate)

    def way(self, source: str, node: str) -> list[Line]:
        """From a GPU to a node: links that more share before its own port."""
        start = self.node_of[source]
        zones = [self._cluster.groups[self._group[name]].zone for name in (start, node)]
        lines: list[Line] = []
        if start != node:
            lines += [("out", start, None), ("in", node, None)]
        if zones[0] is not None and zones[0] != zones[1]:
            lines.append(("zone", zones[0], zones[1]))
        return [*lines, ("send", source, None)]

    def longest_ns(self, bytes_of: dict[Line, int]) -> Fraction:
        times = (size * self.ns_per_byte(line) for line, size in bytes_of.items())
        return max(times, default=Fraction(0))

    def start_ns(self, needs: Iterable[Need]) -> int:
        """Start-up: inside a node, and between nodes where owners or receivers have several."""
        nodes = {self.node_of[gpu] for need in needs for gpu in (*need.owners, *need.receivers)}
        groups = self._cluster.groups
        zones = self._cluster.links_among(range(len(groups)))
        inside_ns = ceil_ns(max(group.intra_node.latency_s for group in groups))
        between_s = max(group.inter_node.latency_s for group in groups)
        between_ns = ceil_ns(between_s + max((link.latency_s for link in zones), default=0.0))
        return inside_ns * bool(nodes) + between_ns * (len(nodes) > 1)


class SwitchOracle:
    """Switches of one model on some machines."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload
        self.network = Network(cluster)
        self._names = list(self.network.node_of)

    def needs(self, before: Plan, after: Plan, kind: Kind) -> list[Need]:
        """Classes of slices with the same owners and needers, node by node; the largest first."""
        model, classes = self._workload, defaultdict[tuple[Gpus, Gpus], list[tuple[int, int]]](list)
        ends = [Holdings(self._cluster, model, plan) for plan in (before, after)]
        width = model.parameter_bytes if kind == "parameters" else model.gradient_bytes
        for layer in range(len(model.layers)):
            for sort in sorts_of(model, layer, kind):
                for volume, owners, missing in _cells(*(end.of(sort, kind) for end in ends)):
                    size = width * ceil(sort.elements * volume)
                    classes[owners, missing].append((layer, size))
        ordered = sorted(classes.items(), key=lambda row: (-sum(s for _, s in row[1]), row[0]))
        needs = list[Need]()
        for (owners, missing), slices in ordered:
            by_node = defaultdict[str, list[str]](list)
            for gpu in missing:
                by_node[self.network.node_of[self._names[gpu]]].append(self._names[gpu])
            named = tuple(self._names[gpu] for gpu in owners)
            needs += [Need(named, node, tuple(gpus), slices) for node, gpus in by_node.items()]
        return needs

    def times_ns(self, before: Plan, after: Plan, kind: Kind) -> tuple[int, int]:
        network, needs = self.network, self.needs(before, after, kind)
        sent = defaultdict[Line, int](int)
        for source, gpu, size in self._rule(needs):
            sent["receive", gpu, None] += size
            for line in network.way(source, network.node_of[gpu]):
                sent[line] += size
        start_ns = network.start_ns(needs)
        return ceil(self._forced_ns(needs)) + start_ns, ceil(network.longest_ns(sent)) + start_ns

    def _rule(self, needs: list[Need]) -> Iterator[tuple[str, str, int]]:
        """From, to and bytes: every GPU is sent its own copy by the owner that has sent least.

        That is one on its node, by what they have sent inside nodes, or where there is none any, by
        what they have sent between nodes; the first of those alike. What one GPU alone may send is
        counted before all else, then slice by slice, layer by layer, GPU by GPU.
        """
        inside, between = (dict.fromkeys(self._names, 0) for _ in range(2))
        free = []
        for place, need in enumerate(needs):
            near = [gpu for gpu in need.owners if self.network.node_of[gpu] == need.node]
            senders, sent = near or list(need.owners), inside if near else between
            if len(senders) == 1:
                sent[senders[0]] += need.size_bytes * len(need.receivers)
                yield from ((senders[0], gpu, need.size_bytes) for gpu in need.receivers)
                continue
            number = next(n for n, other in enumerate(needs) if other.slices is need.slices)
            for i, (layer, size) in enumerate(need.slices):
                free.append(((layer, number, i, place), size, need.receivers, senders, sent))
        for _, size, gpus, senders, sent in sorted(free, key=lambda row: row[0]):
            for gpu in gpus:
                source = min(senders, key=sent.__getitem__)
                sent[source] += size
                yield source, gpu, size

    def _forced_ns(self, needs: list[Need]) -> Fraction:
        """Time that some ports and links take at least, without start-up.

        Every GPU receives what it needs. One copy of a need comes over the lines that the ways from
        all owners have in common, and over one of `slowest`, which has a line of each way. Lines
        together carry no more than the sum of their rates; a need counts once for them: by the
        slowest line in common where that is one of them, else where `slowest` is all of them.
        """
        rate = self.network.ns_per_byte
        loads, alone = defaultdict[Line, int](int), defaultdict[Line, int](int)
        together = defaultdict[frozenset[Line], int](int)
        for need in needs:
            for gpu in need.receivers:
                loads["receive", gpu, None] += need.size_bytes
            ways = [self.network.way(owner, need.node) for owner in need.owners]
            common = set(ways[0]).intersection(*ways[1:])
            for line in common:
                loads[line] += need.size_bytes
            slowest = frozenset(max(way, key=rate) for way in ways)
            bottleneck = max(common, key=rate, default=None)
            if bottleneck is not None:
                alone[bottleneck] += need.size_bytes
            if bottleneck not in slowest:
                together[slowest] += need.size_bytes
        times = (
            (size + sum(alone[line] for line in lines))
            / sum((1 / rate(line) for line in lines), Fraction(0))
            for lines, size in together.items()
        )
        return max((self.network.longest_ns(loads), *times))


def _cells(held: Holding, wanted: Holding) -> Iterator[tuple[Fraction, Gpus, Gpus]]:
    """Of the grid that all cuts make: volume, GPUs that have a cell, those that need it besides."""
    sides = [
        [([(Fraction(a, n), Fraction(b, n)) for a, b, n in part], gpus) for part, gpus in parts]
        for parts in (held.items(), wanted.items())
    ]
    boxes = [box for side in sides for box, _ in side]
    edges = [sorted({edge for box in boxes for edge in box[axis]}) for axis in range(3)]
    masks: dict[tuple[tuple[Fraction, Fraction], ...], list[int]] = {}
    for n, side in enumerate(sides):
        for box, gpus in side:
            inside = [
                [pair for pair in pairwise(edges[axis]) if low <= pair[0] and pair[1] <= high]
                for axis, (low, high) in enumerate(box)
            ]
            for cell in product(*inside):
                masks.setdefault(cell, [0, 0])[n] |= gpus
    for cell, (owners, needers) in masks.items():
        if missing := needers & ~owners:
            volume = Fraction(1)
            for low, high in cell:
                volume *= high - low
            yield volume, _bits(owners), _bits(missing)


def _bits(mask: int) -> Gpus:
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)
