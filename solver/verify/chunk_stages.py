"""Devices with several chunks of layers: what they cost at least, and how much they can do.

Virtual stage s lies on device s mod p, so along the layers the nodes come v times over. Going
through devices instead, each with the sizes of all its chunks, every node comes once: a plan is a
path through the graph of all node orders whose states also count the layers placed so far. What is
given up is where the layers of a chunk begin: it is charged the least of all places where so many
layers may be, which is exact where they are alike. Sizes of all chunks are a split, so nothing but
its times is given up; links between zones, and what the last device's node adds to the transfer to
the first, only lengthen a step.
"""

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.plan import Shape
from formulations.schedules import held
from solver.verify.bounds import Prover
from solver.verify.families import NEVER
from solver.verify.orders import OrderGraph
from solver.verify.stages import Stages

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ChunkStages(Stages):
    """Devices that are busy within a limit, ns; S = p v, W ways to recompute, J node groups.

    Rows of a device: numbers of layers of its chunks.
    """

    most_choices = 400_000

    def __init__(self, prover: Prover, shape: Shape, graph: OrderGraph, limit: int) -> None:
        super().__init__(prover, shape, graph)
        self.limit, self.chunks, self.length = limit, shape.vpp, self.size - 1
        self._tables = prover.tables(shape)
        self._sizes = lru_cache(maxsize=None)(self._within)
        self._taken = lru_cache(maxsize=None)(self._first_way)

    def _stages(self, k: int) -> range:
        """Virtual stages of a device."""
        return range(k, self.shape.num_stages, self.shape.pp)

    @cached_property
    def _places(self) -> Mask:
        """[S, L, n] whether a virtual stage may have so many layers from this one on."""
        stages, ends = self.shape.num_stages, np.arange(self.size)
        s, first, count = np.ogrid[:stages, : self.length, : self.size]
        last = first + count
        inside = (first >= s) & (last <= self.length - (stages - 1 - s))
        outer = ((s > 0) | (first == 0)) & ((s < stages - 1) | (last == self.length))
        enough = self.prover.enough_blocks[ends[:-1, None], np.minimum(last[0], self.length)]
        places: Mask = np.logical_and(inside & outer, (last <= self.length) & enough)
        return places

    def _least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers, where there are any."""
        first = np.arange(self.length)[:, None]
        own = values[first, np.minimum(first + np.arange(self.size), self.length)]
        least: Array = np.where(self._places, own, NEVER).min(axis=1)
        return least

    @cached_property
    def _times(self) -> Array:
        """[2, W, J, S, n] forward, backward, by what is recomputed."""
        forward, backward, _ = self.prover.stage_times(self.shape)
        ways = [interval_sums(extra.T) for extra in self._tables.recompute_ns]
        least = [np.stack([self._least(own) for own in forward])] * len(ways)
        late = [[self._least(own) for own in backward + extra] for extra in ways]
        return np.stack([least, late])

    def sizes(self, k: int) -> Array:
        """[v, rows] layers of every chunk of a device."""
        return self._sizes(k)

    def _within(self, k: int) -> Array:
        """The same where it may be busy within the limit on some group.

        Other devices have as many layers as they have chunks, at least.
        """
        used = [j for j, n in enumerate(self.shape.nodes_used) if n]
        work = self._times[:, 0].sum(axis=0)[used].min(axis=0)
        work = np.where(self._places.any(axis=1), self.least * work, self.limit + 1)
        most = self.length - self.shape.num_stages + self.chunks
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in self._stages(k):
            more = busy[:, None] + work[s]
            own, count = np.nonzero((more <= self.limit) & (sizes.sum(axis=0)[:, None] <= most))
            sizes, busy = np.concatenate([sizes[:, own], count[None]]), more[own, count]
        return sizes[:, sizes.sum(axis=0) <= most]

    def placed(self, k: int, own: Array) -> tuple[Array, Array, Array]:
        """Layers [first, last) of some rows of a device, and the rows, wherever they may begin."""
        p, v, count = self.shape.pp, self.chunks, self.sizes(k)[:, own].sum(axis=0)
        before = np.arange(k * v, (self.length - (p - k) * v) * bool(k) + 1)
        rest = self.length - before[:, None] - count
        x, y = np.nonzero(rest == 0 if k == p - 1 else rest >= (p - 1 - k) * v)
        return before[x], before[x] + count[y], own[y]

    def _first_way(self, k: int) -> Array:
        """[J, rows] the first way that a device may have room with, at its fullest; W: none."""
        shape, tables, sizes = self.shape, self._tables, self.sizes(k)
        stages = np.array(self._stages(k))[:, None]
        most = held(shape.schedule, shape.pp, k, self.least, shape.vpp).whole

        def at_least(values: Array) -> Array:
            """[v, rows] of [n, n]."""
            return np.asarray(self._least(values)[stages, sizes])

        ways = []
        for memory, capacity in zip(tables.memory, tables.capacity_bytes, strict=True):
            static = at_least(interval_sums(memory.static_bytes)).sum(axis=0) + memory.fixed_bytes
            kept = [
                (most @ at_least(interval_sums(way.activation_bytes))).max(axis=0)
                + at_least(interval_maxima(way.workspace_bytes)).max(axis=0)
                for way in memory.kept
            ]
            short = static + np.stack(kept) > capacity
            ways.append(np.logical_and.accumulate(short).sum(axis=0))
        return np.stack(ways)

    def _held(self, k: int) -> Array:
        """[J, rows] whether memory holds even shares, as a number of micro-batches."""
        return np.where(self._taken(k) < len(self.shape.recompute), NEVER, 0)

    def possible(self, k: int) -> Mask:
        """[rows] all."""
        return np.ones(self.sizes(k).shape[1], dtype=np.bool_)

    def _passes(self, k: int) -> list[list[Array]]:
        """By chunk [J, rows] ns, at least: forward, backward; no weight gradients are put off."""
        way = self._taken(k) % len(self.shape.recompute)
        group = np.arange(len(way))[:, None]
        pairs = list(zip(self._stages(k), self.sizes(k), strict=True))
        times = [[kind[way, group, s, own] for s, own in pairs] for kind in self._times]
        return [*times, [0 * way] * self.chunks]

    @cached_property
    def kind(self) -> Array:
        """[n] all alike: messages have as many tensors as those with fewest."""
        return np.zeros(self.size, dtype=np.int64)

    def send(self, k: int) -> Array:
        """[A, R, 1] messages between a device and the one before, by step."""
        return np.asarray(self.graph.built[k].send.min(axis=-1, keepdims=True))

    @cached_property
    def _tails_of_chunks(self) -> tuple[Array, Array]:
        """[T, S, n] of the layers of one chunk; [T] once."""
        rows = self.graph.epilogues.all_ns
        each = np.stack([self._least(tail - tail[0, 0]) for tail in rows])
        return each, np.array([tail[0, 0] for tail in rows])

    def tail_ns(self, k: int, tails: Array, own: Array) -> Array:
        """[M] of a device on nodes with these rows of tails."""
        each, once = self._tails_of_chunks
        parts = zip(self._stages(k), self.sizes(k)[:, own], strict=True)
        return np.asarray(once[tails] + sum(each[tails, s, count] for s, count in parts))
