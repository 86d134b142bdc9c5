"""What messages and collectives take over given links."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s, ring_share
from formulations.instance import Instance, Link, NodeGroup
from formulations.units import NANOSECONDS_PER_SECOND, ceil_ns

Array = NDArray[np.int64]


class Member(NamedTuple):
    """A node of a stage: its group, GPUs per ring, rings over its border, buffers [L]."""

    group: NodeGroup
    ranks: int
    rings: int
    sizes_bytes: Array


def ceil_all_ns(seconds: ArrayLike) -> Array:
    """Nanoseconds, each rounded up as `ceil_ns` does."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    whole: Array = np.ceil(exact * (1 - 1e-12)).astype(np.int64)
    return whole


def inside_s(group: NodeGroup, size_bytes: int) -> float:
    """A message inside a node."""
    link = group.intra_node
    return size_bytes / link.bandwidth_bytes_per_s + link.latency_s


def outside_s(
    instance: Instance, tp: int, group: NodeGroup, link: Link, flows: int, size_bytes: int
) -> float:
    """A message over a link that so many of equal size share, at a node of the group."""
    whole_s = flows * size_bytes / link.bandwidth_bytes_per_s + link.latency_s
    if instance.search.gathers_messages:  # the parts are gathered inside the node
        whole_s += (tp - 1) * inside_s(group, size_bytes)
    return whole_s


def pair_s(link: Link, flows: int, size_bytes: int) -> float:
    """All-reduce between two GPUs over a link that so many share."""
    whole_s = flows * ring_share(ALL_REDUCE, 2) * size_bytes / link.bandwidth_bytes_per_s
    return whole_s + ring_latency_s(ALL_REDUCE, 2, link.latency_s)


def rings_ns(
    instance: Instance,
    factor: float,
    members: Sequence[Member],
    more: Iterable[tuple[Link, int, Array]],
) -> tuple[Array, int]:
    """Ring collective over the nodes of a stage: of every buffer, and its start.

    more: links beside those of the nodes, with the rings that share them and their buffers.
    """
    count, efficiency = len(members), instance.cluster.efficiency(len(members))
    links = [(one.group.inter_node, one.rings, one.sizes_bytes) for one in members] + list(more)
    inside = [
        ceil_all_ns(
            one.sizes_bytes
            * (ring_share(factor, one.ranks) / one.group.intra_node.bandwidth_bytes_per_s)
        )
        for one in members
    ]
    outside = [
        ceil_all_ns(
            sizes_bytes
            * (rings * ring_share(factor, count) / link.bandwidth_bytes_per_s / efficiency)
        )
        for link, rings, sizes_bytes in links
    ]
    start_s = max(
        ring_latency_s(factor, one.ranks, one.group.intra_node.latency_s) for one in members
    )
    between_s = max(ring_latency_s(factor, count, link.latency_s) for link, _, _ in links)
    layers = np.max(inside, axis=0) + np.max(outside, axis=0)
    return layers, ceil_ns(start_s) + ceil_ns(between_s)
