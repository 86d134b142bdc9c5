"""What crosses the boundaries of stages, counted flow by flow; `recount` says how."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from formulations.instance import Link
from formulations.units import ceil_ns
from solver.verify.layout import Layout
from solver.verify.link_times import inside_s, outside_s
from solver.verify.volumes import message_bytes, message_lanes


@dataclass(frozen=True)
class CountedFlows:
    """Messages of a plan. Virtual stage s, a run of layers, is on the GPUs of stage s mod p.

    tensors[s]: how many one GPU sends from virtual stage s to the next for one micro-batch.
    """

    layout: Layout
    tensors: tuple[int, ...]

    def send_ns(self, s: int, r: int) -> int:
        """Transfer of one micro-batch between virtual stages s and s + 1 of replica r, any way."""
        at, k = self.layout, s % self.layout.shape.pp
        source, target = self._boundaries[k][r]
        if at.together(source, target):
            each = (inside_s(at.group(a), self._message_bytes(s, a)) for a in (source, target))
            return ceil_ns(max(each))
        flows = self._departures[k][source], self._arrivals[k][target]
        links = [
            (node, at.group(node).inter_node, n)
            for node, n in zip((source, target), flows, strict=True)
        ]
        way = (at.zone[source], at.zone[target])
        if way[0] != way[1]:
            passing = self._passages[k][way]
            link = at.instance.cluster.link_between(*way)
            links += [(n, link, passing * self._lanes(n, n)) for n in (source, target)]
        return max(self._outside_ns(s, *link) for link in links)

    def _message_bytes(self, s: int, node: int) -> int:
        """What a GPU of a node sends or gets after virtual stage s."""
        at = self.layout
        return self.tensors[s] * message_bytes(at.instance, at.shape, at.group_index[node])

    def _outside_ns(self, s: int, node: int, link: Link, flows: int) -> int:
        at, size = self.layout, self._message_bytes(s, node)
        tp, group = at.degrees(node).tp, at.group(node)
        return ceil_ns(outside_s(at.instance, tp, group, link, flows, size))

    @cached_property
    def _departures(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that leave each node."""
        return [self._flows(pairs) for pairs in self._boundaries]

    @cached_property
    def _arrivals(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that enter each node."""
        return [self._flows((b, a) for a, b in pairs) for pairs in self._boundaries]

    @cached_property
    def _boundaries(self) -> list[list[tuple[int, int]]]:
        """From every stage of GPUs that sends to the next: nodes of sender and receiver."""
        nodes = self.layout.nodes
        targets = nodes[1:] + (nodes[:1] if self.layout.shape.vpp > 1 else ())
        rows = zip(nodes, targets, strict=False)
        return [list(zip(*row, strict=True)) for row in rows]

    def _flows(self, pairs: Iterable[tuple[int, int]]) -> Counter[int]:
        """By the first of each pair."""
        apart = (pair for pair in pairs if not self.layout.together(*pair))
        return Counter(a for a, b in apart for _ in range(self._lanes(a, b)))

    @cached_property
    def _passages(self) -> list[Counter[tuple[str | None, str | None]]]:
        """Per boundary: replicas that go from zone to zone."""
        zone = self.layout.zone
        return [Counter((zone[a], zone[b]) for a, b in pairs) for pairs in self._boundaries]

    def _lanes(self, node: int, other: int) -> int:
        """Flows of one replica over the border of a node, between it and another one."""
        at = self.layout
        widest = max(at.degrees(one).tp for one in (node, other)) if at.machines else None
        return message_lanes(at.instance, at.shape, at.group_index[node], widest)
