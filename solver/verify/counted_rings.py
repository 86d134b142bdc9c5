"""What collectives of a plan take, counted ring by ring; `recount` says how."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Link
from formulations.units import ceil_ns
from solver.verify.layout import Layout
from solver.verify.link_times import Member, pair_s, rings_ns
from solver.verify.volumes import tied_bytes, widest
from solver.verify.zone_links import zone_legs

Array = NDArray[np.int64]


@dataclass(frozen=True)
class CountedRings:
    """Rings over the replicas of every stage, and pairs that hold a tied matrix."""

    layout: Layout

    def collective_ns(self, k: int, factor: float, sizes_bytes: Array) -> int:
        """Ring collective over the parts of the replicas of stage k.

        sizes_bytes: [n, J] a buffer per layer, on GPUs of every node group.
        """
        at = self.layout
        nodes = [
            Member(
                at.group(node),
                count * at.degrees(node).parts * at.degrees(node).cp,
                self._rings[node],
                sizes_bytes[:, at.group_index[node]],
            )
            for node, count in self._members[k].items()
        ]
        most = sizes_bytes[:, widest(at.shape)]
        join = at.instance.cluster.link_between
        more = [(join(*leg), self._zone_rings(leg), most) for leg in self._legs[k]]
        layers, start_ns = rings_ns(at.instance, factor, nodes, more)
        return int(layers.sum()) + start_ns

    def _zone_rings(self, leg: frozenset[str | None]) -> int:
        """Rings of GPUs between two zones, over all stages, each as wide as the widest."""
        return self.layout.shape.widest_tp * sum(leg in legs for legs in self._legs)

    def _tied_bytes(self, group: int) -> int:
        return tied_bytes(self.layout.instance, self.layout.shape, group)

    def embedding_ns(self) -> int:
        """All-reduce of a tied matrix between the two groups of every replica that hold it."""
        at = self.layout
        used = [j for j, count in enumerate(at.shape.nodes_used) if count]
        if not self._tied_bytes(used[0]):
            return 0
        pairs = list(zip(at.nodes[0], at.nodes[-1], strict=True))
        joined = [pair for pair in pairs if at.together(*pair)]
        lanes = Counter(node for pair in pairs if pair not in joined for node in pair)
        inside = {node for pair in joined for node in pair}
        zones = Counter(frozenset((at.zone[a], at.zone[b])) for a, b in pairs)
        join = at.instance.cluster.link_between
        apart = [(join(*ends), count) for ends, count in zones.items() if len(ends) > 1]
        links: list[tuple[Link, int, int]] = [
            *(
                (at.group(node).inter_node, n * at.degrees(node).width, at.group_index[node])
                for node, n in lanes.items()
            ),
            *((at.group(node).intra_node, 1, at.group_index[node]) for node in inside),
            *((link, n * at.shape.degrees[j].width, j) for link, n in apart for j in used),
        ]
        return max(ceil_ns(pair_s(link, n, self._tied_bytes(j))) for link, n, j in links)

    @cached_property
    def _members(self) -> list[Counter[int]]:
        """Per stage: number of replicas on each of its nodes."""
        return [Counter(row) for row in self.layout.nodes]

    @cached_property
    def _rings(self) -> Counter[int]:
        """Per node: rings of GPUs that cross its border, over all stages."""
        crossing = [node for stage in self._members if len(stage) > 1 for node in stage]
        return Counter(node for node in crossing for _ in range(self.layout.degrees(node).tp))

    @cached_property
    def _legs(self) -> list[list[frozenset[str | None]]]:
        """Per stage: pairs of zones that follow each other on the ring between its nodes."""
        instance, group = self.layout.instance, self.layout.group_index
        return [zone_legs(instance, (group[node] for node in stage)) for stage in self._members]
