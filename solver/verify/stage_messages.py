"""Messages between nodes that cover slots in a row, whatever the other nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.instance import Instance, Link, NodeGroup
from formulations.plan import Shape
from formulations.units import ceil_ns
from solver.verify.link_times import inside_s, outside_s
from solver.verify.volumes import message_bytes, message_lanes
from solver.verify.zone_links import zone_legs


@dataclass(frozen=True)
class Spot:
    """A node by its group and the slots that it covers."""

    group: int
    slots: range


def stage_slots(shape: Shape, k: int) -> range:
    """Slots of a stage."""
    return range(k * shape.dp, (k + 1) * shape.dp)


def common(one: range, other: range) -> range:
    """Slots that both have."""
    return range(max(one.start, other.start), min(one.stop, other.stop))


class Messages:
    """The messages of one shape: of every number of tensors K that layers send."""

    def __init__(self, instance: Instance, shape: Shape) -> None:
        self.instance, self.shape = instance, shape
        counts = [layer.output_tensors for layer in instance.workload.layers]
        tensors = sorted(set(counts))
        #: [J, K]
        self.sizes_bytes = [
            [n * message_bytes(instance, shape, j) for n in tensors]
            for j in range(len(shape.degrees))
        ]
        self.lanes = [message_lanes(instance, shape, j) for j in range(len(shape.degrees))]
        #: [n] of which number of tensors the message before a layer is
        self.kind = np.array([0, *map(tensors.index, counts)])
        self._departures = lru_cache(maxsize=None)(self._flows_out)
        self._arrivals = lru_cache(maxsize=None)(self._flows_in)

    def _flows_out(self, spot: Spot, k: int) -> int:
        """Flows from stage k to the next that leave the node."""
        return self._flows(spot, k, self.shape.dp)

    def _flows_in(self, spot: Spot, k: int) -> int:
        """Flows from stage k to the next, or the first, that enter the node."""
        last = k == self.shape.pp - 1
        return self._flows(
            spot, 0 if last else k + 1, k * self.shape.dp if last else -self.shape.dp
        )

    def _flows(self, spot: Spot, k: int, shift: int) -> int:
        """Flows of slots of stage k on the node whose other ends, so far on, are not on it."""
        own = common(spot.slots, stage_slots(self.shape, k))
        ends = range(own.start + shift, own.stop + shift)
        return self.lanes[spot.group] * (len(own) - len(common(spot.slots, ends)))

    def _group(self, spot: Spot) -> NodeGroup:
        return self.instance.cluster.groups[spot.group]

    def inside_ns(self, spot: Spot) -> list[int]:
        """[K] inside a node."""
        sizes = self.sizes_bytes[spot.group]
        return [ceil_ns(inside_s(self._group(spot), size)) for size in sizes]

    def between_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        """[K] between stages k - 1 and k on these nodes, so many between their zones."""
        if source == target:
            return self.inside_ns(source)
        ends: list[tuple[int, Link, int]] = [
            (source.group, self._group(source).inter_node, self._departures(source, k - 1)),
            (target.group, self._group(target).inter_node, self._arrivals(target, k - 1)),
        ]
        for leg in zone_legs(self.instance, (source.group, target.group)):
            link = self.instance.cluster.link_between(*leg)
            ends += [(j, link, crossing * self.lanes[j]) for j in (source.group, target.group)]
        return self._slowest_ns(ends)

    def back_ns(self, spot: Spot, r: int) -> list[int]:
        """[K] to replica r of the first stage on this node from that of the last."""
        last, group = self.shape.pp - 1, self._group(spot)
        if last * self.shape.dp + r in spot.slots:
            return self.inside_ns(spot)
        return self._slowest_ns([(spot.group, group.inter_node, self._arrivals(spot, last))])

    def _slowest_ns(self, ends: Sequence[tuple[int, Link, int]]) -> list[int]:
        """[K] over links at nodes of these groups, each with the flows that share it."""
        times = [
            [self._over_ns(j, link, flows, size) for size in self.sizes_bytes[j]]
            for j, link, flows in ends
        ]
        return [max(column) for column in zip(*times, strict=True)]

    def _over_ns(self, j: int, link: Link, flows: int, size_bytes: int) -> int:
        group, tp = self.instance.cluster.groups[j], self.shape.degrees[j].tp
        return ceil_ns(outside_s(self.instance, tp, group, link, flows, size_bytes))
