"""Ways to run a device with all its chunks of layers, and what they cost: see `devices`."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from solver.layered.least_chunks import LeastChunks
from solver.layered.problem import INFINITY, Array, Mask


@dataclass(frozen=True)
class _Runs:
    """Edges in the order of the nodes at one end: `order` [M], where a node begins, the nodes."""

    order: Array
    first: Array
    nodes: Array

    @classmethod
    def of(cls, ends: Array) -> "_Runs":
        """Of edges with these ends [M]."""
        order = np.argsort(ends, kind="stable")
        known = ends[order]
        begins = np.ones(len(known), dtype=bool)
        np.not_equal(known[1:], known[:-1], out=begins[1:])
        first = np.flatnonzero(begins)
        return cls(order, first, known[first])

    def least(self, cost: Array, size: int) -> Array:
        """[C, size] least of `cost` [C, M] by node."""
        best = np.full((len(cost), size), INFINITY)
        best[:, self.nodes] = np.minimum.reduceat(cost[:, self.order], self.first, axis=1)
        return best


@dataclass(frozen=True)
class DeviceEdges:
    """M ways to run one device; v chunks, R lanes, ns.

    arc: [M]. before: [M] layers of the devices before. sizes: [v, M]. source, target: [M] nodes,
    state * n + layers. passes: [2 v, R, M] forward of the chunks, then backward. send: [v, R, M]
    to every chunk from the virtual stage before, and back. tail: [M].
    """

    arc: Array
    before: Array
    sizes: Array
    source: Array
    target: Array
    passes: Array
    send: Array
    tail: Array

    def __len__(self) -> int:
        return len(self.arc)

    def take(self, keep: Mask | Array) -> "DeviceEdges":
        """Some of them."""
        return DeviceEdges(*(getattr(self, field.name)[..., keep] for field in fields(self)))

    @cached_property
    def by_source(self) -> _Runs:
        """By the node before."""
        return _Runs.of(self.source)

    @cached_property
    def by_target(self) -> _Runs:
        """By the node after."""
        return _Runs.of(self.target)

    def values(self, rows: Array, device: Array, k: int, lane: int) -> Array:
        """[C, M] what the edges of device k add to paths; see `Cuts` of S virtual stages."""
        chunks, stages = len(self.sizes), rows.shape[1] // 5
        p = stages // chunks
        forward, backward, send, back, _ = (
            rows[:, i * stages + k : (i + 1) * stages : p] for i in range(5)
        )
        visits = np.concatenate([forward, backward, send + back], axis=1)
        values: Array = visits @ np.concatenate([self.passes[:, lane], self.send[:, lane]])
        values[device == k] += self.tail
        return values


def device_edges(costs: LeastChunks, k: int, cutoff: int, most: int) -> DeviceEdges | None:
    """Edges of device k that is not busy until the cutoff and fits; None if above `most`."""
    arcs, p, v = costs.problem.stages[k], costs.p, costs.v
    sizes = costs.within(k, cutoff)
    count, ways = sizes.sum(axis=0), costs.ways(k, sizes)
    num_ways = len(costs.times[0])
    before = np.arange(k * v, costs.length - (p - k) * v + 1) if k else np.zeros(1, np.int64)
    rest = costs.length - before[:, None] - count
    joined = (rest == 0) if k == p - 1 else (rest >= (p - 1 - k) * v)
    stages = np.arange(k, p * v, p)
    rows, total = [], 0
    for x, column in enumerate(arcs.column):
        way = np.minimum(ways[column], num_ways - 1)[:, None]
        times = costs.times[:, way, column[:, None, None], stages[:, None], sizes]
        busy = costs.share * times.sum(axis=(0, 2))
        room = (ways[column] < num_ways).all(axis=0)
        first, own = np.nonzero(joined & room & (busy < cutoff).all(axis=0))
        total += len(own)
        if total > most:
            return None
        rows.append((np.full(len(own), x), before[first], own))
    arc, first, own = (np.concatenate(column) for column in zip(*rows, strict=True))
    return _priced(costs, k, arc, first, sizes[:, own], ways[:, own])


def _priced(
    costs: LeastChunks, k: int, arc: Array, before: Array, sizes: Array, ways: Array
) -> DeviceEdges:
    stages = np.arange(k, costs.p * costs.v, costs.p)
    arcs = [costs.problem.stages[s] for s in stages]
    column = arcs[0].column[arc].T
    way = ways[column, np.arange(len(arc))][None]
    passes = costs.times[:, way, column[None], stages[:, None, None], sizes[:, None]]
    tail = sum(
        (
            costs.tails[own.tail[arc], s, n] + own.embedding[arc] * costs.problem.tied
            for own, s, n in zip(arcs, stages, sizes, strict=True)
        ),
        np.zeros(len(arc), dtype=np.int64),
    )
    return DeviceEdges(
        arc=arc,
        before=before,
        sizes=sizes,
        source=arcs[0].source[arc] * costs.size + before,
        target=arcs[0].target[arc] * costs.size + before + sizes.sum(axis=0),
        passes=passes.reshape(2 * costs.v, *column.shape),
        send=np.stack([own.send[arc].T for own in arcs]),
        tail=tail,
    )
