"""Who may send what to whom in a switch, and how long that takes.

Sets. Classes of slices; demands: a class and the GPUs of one node that need it; ports and links.
Decisions. For every byte of a demand: an owner sends it to each of the GPUs, or to one of them, the
*via*, which forwards it to the others. So it enters the node once, or once for each GPU.
Objective. The time of the busiest port or link (`network`), and start-up, alike for all plans.
Assumptions. A class can be divided between elements. No node passes a slice on to another node.
What a GPU needs and holds stays where it is, at no cost.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from formulations.instance import Cluster, Workload
from formulations.switching.network import Network
from formulations.switching.seats import Kind, Layout
from formulations.switching.slices import SliceClass, slice_classes


class Sending(NamedTuple):
    """Bytes [begin, end) of a class from an owner to GPUs of one node.

    via: the one of them that gets it from the owner and forwards it; None if the owner sends to
    each.
    """

    number: int  #: of the class
    begin: int
    end: int
    source: int
    via: int | None
    receivers: tuple[int, ...]

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

    def direct(self, receivers: tuple[int, ...] | None = None) -> Sending:
        """All of it from the first of them to each receiver, or to some of these."""
        to = receivers or self.receivers
        return Sending(self.number, 0, self.size_bytes, self.senders[0], None, to)


@dataclass(frozen=True)
class Switch:
    """What has to move, and over what."""

    network: Network
    classes: tuple[SliceClass, ...]

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """Every class by the nodes that need it."""
        found, node_of = [], self.network.node_of
        for number, one in enumerate(self.classes):
            owners, receivers = by_node(one.owners, node_of), by_node(one.needers, node_of)
            size = one.size_bytes
            for node, gpus in receivers.items():
                near = tuple(owners.get(node, ()))
                found.append(Demand(number, node, tuple(gpus), one.owners, near, size))
        return tuple(found)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Ports and links from GPU to GPU."""
        network, node_of = self.network, self.network.node_of
        links = network.between(node_of[source], node_of[target])
        return source, network.receives(target), *links

    def loads(self, sendings: Iterable[Sending]) -> list[int]:
        """Bytes on every port and link."""
        hops = [(*hop, one.end - one.begin) for one in sendings for hop in one.hops()]
        return self.network.loads(np.array(hops, dtype=np.int64).reshape(-1, 3))

    def volumes(self, sendings: Iterable[Sending]) -> dict[int, list[int]]:
        """Bytes of every GPU with some: sent inside nodes and between, received inside, between."""
        node_of, volumes = self.network.node_of, dict[int, list[int]]()
        for sending in sendings:
            for source, target in sending.hops():
                between, size = node_of[source] != node_of[target], sending.end - sending.begin
                volumes.setdefault(source, [0] * 4)[between] += size
                volumes.setdefault(target, [0] * 4)[2 + between] += size
        return volumes

    @cached_property
    def latency_ns(self) -> int:
        """Start-up of the longest way that a slice may go: between nodes, then inside one."""
        if not self.demands:
            return 0
        nodes = {self.network.node_of[gpu] for one in self.demands for gpu in one.owners}
        crosses = len(nodes | {one.node for one in self.demands}) > 1
        return self.network.inside_latency_ns + crosses * self.network.between_latency_ns

    def time_ns(self, sendings: Iterable[Sending]) -> int:
        """Time until everything has arrived, rounded up."""
        return ceil(self.network.busiest_ns(self.loads(sendings))) + self.latency_ns


def by_node(gpus: Iterable[int], node_of: Sequence[int]) -> dict[int, list[int]]:
    """GPUs node by node."""
    found: dict[int, list[int]] = {}
    for gpu in gpus:
        found.setdefault(node_of[gpu], []).append(gpu)
    return found


def switch_of(
    cluster: Cluster,
    workload: Workload,
    before: Layout,
    after: Layout,
    kinds: Sequence[Kind],
) -> Switch:
    """What has to move of some kinds from one layout to another."""
    return Switch(Network(cluster), slice_classes(workload, before, after, kinds))
