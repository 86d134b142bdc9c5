"""Messages between nodes that cover slots in a row, whatever the other nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.instance import Instance, Link, NodeGroup
from formulations.plan import Shape
from formulations.units import ceil_ns
from solver.verify.link_times import inside_s, outside_s
from solver.verify.volumes import message_bytes
from solver.verify.zone_links import zone_link


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
        self.sizes_bytes = [n * message_bytes(instance, shape) for n in tensors]
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
        return self.shape.tp * (len(own) - len(common(spot.slots, ends)))

    def _group(self, spot: Spot) -> NodeGroup:
        return self.instance.cluster.groups[spot.group]

    def inside_ns(self, spot: Spot) -> list[int]:
        """[K] inside a node."""
        return [ceil_ns(inside_s(self._group(spot), size)) for size in self.sizes_bytes]

    def between_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        """[K] between stages k - 1 and k on these nodes, so many between their zones."""
        if source == target:
            return self.inside_ns(source)
        ends = [
            (self._group(source), self._group(source).inter_node, self._departures(source, k - 1)),
            (self._group(target), self._group(target).inter_node, self._arrivals(target, k - 1)),
        ]
        if zone := zone_link(self.instance, (source.group, target.group)):
            flows = crossing * self.shape.tp
            ends += [(self._group(source), zone, flows), (self._group(target), zone, flows)]
        return self._slowest_ns(ends)

    def back_ns(self, spot: Spot, r: int) -> list[int]:
        """[K] to replica r of the first stage on this node from that of the last."""
        last, group = self.shape.pp - 1, self._group(spot)
        if last * self.shape.dp + r in spot.slots:
            return self.inside_ns(spot)
        return self._slowest_ns([(group, group.inter_node, self._arrivals(spot, last))])

    def _slowest_ns(self, ends: Sequence[tuple[NodeGroup, Link, int]]) -> list[int]:
        instance, tp = self.instance, self.shape.tp
        return [
            max(ceil_ns(outside_s(instance, tp, *end, size)) for end in ends)
            for size in self.sizes_bytes
        ]
