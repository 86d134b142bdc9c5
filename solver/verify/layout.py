"""Where a plan runs, and what crosses its links, counted flow by flow; `recount` says how."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance, Link, NodeGroup
from formulations.plan import Degrees, Shape
from formulations.units import ceil_ns
from solver.verify.link_times import Member, inside_s, outside_s, pair_s, rings_ns
from solver.verify.volumes import message_bytes, message_lanes, tied_bytes, widest

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where a plan runs: nodes[k][r] is the node of stage k of replica r, for p stages of GPUs.

    Virtual stage s, a run of layers, is on the GPUs of stage s mod p. tensors[s]: how many one GPU
    sends from virtual stage s to the next for one micro-batch.
    """

    instance: Instance
    shape: Shape
    nodes: tuple[tuple[int, ...], ...]
    tensors: tuple[int, ...]
    #: Where every stage has degrees of its own: which machine each node is, of those by place.
    machines: tuple[int, ...] = ()

    def group(self, node: int) -> NodeGroup:
        """The group that a node belongs to."""
        return self.instance.cluster.groups[self.group_index[node]]

    def degrees(self, node: int) -> Degrees:
        """How the GPUs of a slot on a node share its stage."""
        return self.shape.degrees[self.group_index[node]]

    def lanes(self, node: int, other: int) -> int:
        """Flows of one replica over the border of a node, between it and another one."""
        widest = max(self.degrees(one).tp for one in (node, other)) if self.machines else None
        return message_lanes(self.instance, self.shape, self.group_index[node], widest)

    def together(self, a: int, b: int) -> bool:
        """Whether two nodes are one machine."""
        return a == b or bool(self.machines and self.machines[a] == self.machines[b])

    @cached_property
    def group_index(self) -> tuple[int, ...]:
        """Group index of every node of the cluster."""
        return self.instance.cluster.node_groups

    @cached_property
    def zone(self) -> tuple[str | None, ...]:
        """Zone of every node of the cluster."""
        return tuple(self.instance.cluster.groups[j].zone for j in self.group_index)

    @cached_property
    def zone_link(self) -> Link:
        """The link between two zones."""
        link = self.instance.cluster.zone_link
        assert link is not None  # Cluster: nodes in two zones have one
        return link

    @cached_property
    def members(self) -> list[Counter[int]]:
        """Per stage: number of replicas on each of its nodes."""
        return [Counter(row) for row in self.nodes]

    @cached_property
    def rings(self) -> Counter[int]:
        """Per node: rings of GPUs that cross its border, over all stages."""
        crossing = [node for stage in self.members if len(stage) > 1 for node in stage]
        return Counter(node for node in crossing for _ in range(self.degrees(node).tp))

    @cached_property
    def departures(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that leave each node."""
        return [self._flows(pairs) for pairs in self.boundaries]

    @cached_property
    def arrivals(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that enter each node."""
        return [self._flows((b, a) for a, b in pairs) for pairs in self.boundaries]

    @cached_property
    def boundaries(self) -> list[list[tuple[int, int]]]:
        """From every stage of GPUs that sends to the next: nodes of sender and receiver."""
        targets = self.nodes[1:] + (self.nodes[:1] if self.shape.vpp > 1 else ())
        rows = zip(self.nodes, targets, strict=False)
        return [list(zip(*row, strict=True)) for row in rows]

    def _flows(self, pairs: Iterable[tuple[int, int]]) -> Counter[int]:
        """By the first of each pair."""
        apart = (pair for pair in pairs if not self.together(*pair))
        return Counter(a for a, b in apart for _ in range(self.lanes(a, b)))

    @cached_property
    def passages(self) -> list[Counter[tuple[str | None, str | None]]]:
        """Per boundary: replicas that go from zone to zone."""
        return [
            Counter((self.zone[a], self.zone[b]) for a, b in pairs) for pairs in self.boundaries
        ]

    @cached_property
    def legs(self) -> list[set[frozenset[str]]]:
        """Per stage: pairs of zones that follow each other on the ring between its nodes."""
        order = dict.fromkeys(self.zone)
        tours = [
            [zone for zone in order if zone and any(self.zone[node] == zone for node in stage)]
            for stage in self.members
        ]
        return [
            {frozenset((tour[i - 1], tour[i])) for i in range(len(tour)) if len(tour) > 1}
            for tour in tours
        ]

    def send_ns(self, s: int, r: int) -> int:
        """Transfer of one micro-batch between virtual stages s and s + 1 of replica r, any way."""
        k = s % self.shape.pp
        source, target = self.boundaries[k][r]
        if self.together(source, target):
            each = (inside_s(self.group(a), self._message_bytes(s, a)) for a in (source, target))
            return ceil_ns(max(each))
        flows = self.departures[k][source], self.arrivals[k][target]
        links = [
            (node, self.group(node).inter_node, n)
            for node, n in zip((source, target), flows, strict=True)
        ]
        way = (self.zone[source], self.zone[target])
        if way[0] != way[1]:
            links += [
                (node, self.zone_link, self.passages[k][way] * self.lanes(node, node))
                for node in (source, target)
            ]
        return max(self._outside_ns(s, *link) for link in links)

    def _message_bytes(self, s: int, node: int) -> int:
        """What a GPU of a node sends or gets after virtual stage s."""
        tensor = message_bytes(self.instance, self.shape, self.group_index[node])
        return self.tensors[s] * tensor

    def _outside_ns(self, s: int, node: int, link: Link, flows: int) -> int:
        size, tp = self._message_bytes(s, node), self.degrees(node).tp
        return ceil_ns(outside_s(self.instance, tp, self.group(node), link, flows, size))

    def collective_ns(self, k: int, factor: float, sizes_bytes: Array) -> int:
        """Ring collective over the parts of the replicas of stage k.

        sizes_bytes: [n, J] a buffer per layer, on GPUs of every node group.
        """
        nodes = [
            Member(
                self.group(node),
                count * self.degrees(node).parts * self.degrees(node).cp,
                self.rings[node],
                sizes_bytes[:, self.group_index[node]],
            )
            for node, count in self.members[k].items()
        ]
        most = widest(self.shape)
        more = [
            (self.zone_link, self._zone_rings(leg), sizes_bytes[:, most]) for leg in self.legs[k]
        ]
        layers, start_ns = rings_ns(self.instance, factor, nodes, more)
        return int(layers.sum()) + start_ns

    def _zone_rings(self, leg: frozenset[str]) -> int:
        """Rings of GPUs between two zones, over all stages, each as wide as the widest."""
        return self.shape.widest_tp * sum(leg in legs for legs in self.legs)

    def _tied_bytes(self, node: int) -> int:
        return tied_bytes(self.instance, self.shape, self.group_index[node])

    def embedding_ns(self) -> int:
        """All-reduce of a tied matrix between the two groups of every replica that hold it."""
        used = [j for j, count in enumerate(self.shape.nodes_used) if count]
        if not tied_bytes(self.instance, self.shape, used[0]):
            return 0
        pairs = list(zip(self.nodes[0], self.nodes[-1], strict=True))
        apart = [pair for pair in pairs if not self.together(*pair)]
        lanes = Counter(node for pair in apart for node in pair)
        links: list[tuple[Link, int, int]] = [
            (self.group(node).inter_node, n * self.degrees(node).tp, self._tied_bytes(node))
            for node, n in lanes.items()
        ]
        links += [
            (self.group(a).intra_node, 1, self._tied_bytes(a))
            for pair in pairs
            if self.together(*pair)
            for a in pair
        ]
        zones = Counter(frozenset((self.zone[a], self.zone[b])) for a, b in pairs)
        links += [
            (
                self.zone_link,
                count * self.shape.degrees[j].tp,
                tied_bytes(self.instance, self.shape, j),
            )
            for ends, count in zones.items()
            for j in used
            if len(ends) > 1
        ]
        return max(ceil_ns(pair_s(*link)) for link in links)
