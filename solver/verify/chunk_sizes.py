"""What chunks of so many layers cost at least, wherever in the chain they begin."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory, capacity_bytes, layer_memory
from formulations.plan import Shape
from solver.verify.bounds import Prover
from solver.verify.lengths import NEVER

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ChunkSizes:
    """Chunks of one shape, by virtual stage and number of layers.

    n = L + 1, S = p v; W ways to recompute, J node groups.
    """

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.prover, self.shape, self.instance = prover, shape, prover.instance
        self.length, self.size = len(prover.layers), len(prover.layers) + 1
        self.share = prover.instance.workload.global_batch // shape.micro_batch // shape.dp

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

    @cached_property
    def _possible(self) -> Mask:
        """[S, n] whether a virtual stage may have so many layers anywhere."""
        possible: Mask = np.any(self._places, axis=1)
        return possible

    def least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers, where there are any."""
        first = np.arange(self.length)[:, None]
        own = values[first, np.minimum(first + np.arange(self.size), self.length)]
        least: Array = np.where(self._places, own, NEVER).min(axis=1)
        return least

    @cached_property
    def times(self) -> Array:
        """[2, W, J, S, n] forward, backward, by what is recomputed."""
        forward, backward, _ = self.prover.stage_times(self.shape)
        ways = self.prover.chunk_ways(self.shape).extra
        least = [np.stack([self.least(own) for own in forward])] * len(ways)
        late = [[self.least(own) for own in backward + extra] for extra in ways]
        return np.stack([least, late])

    @cached_property
    def _kinds(self) -> tuple[LayerMemory, ...]:
        """[J] what layers take on the GPUs of a group."""
        return layer_memory(self.instance, self.shape)

    def _memory(self, memory: LayerMemory) -> tuple[Array, list[tuple[Array, Array]]]:
        """[S, n] bytes: what stays; by way per micro-batch held, while a block is recomputed."""
        ways = [
            (
                self.least(interval_sums(own.activation_bytes)),
                self.least(interval_maxima(own.workspace_bytes)),
            )
            for own in memory.kept
        ]
        return self.least(interval_sums(memory.static_bytes)), ways

    def within(self, k: int, limit: int) -> Array:
        """[v, N] sizes of the chunks of a device that may be busy within the limit on some group.

        Other devices have as many layers as they have chunks, at least.
        """
        used = [j for j, n in enumerate(self.shape.nodes_used) if n]
        work = self.times[:, 0].sum(axis=0)[used].min(axis=0)
        work = self.share * np.where(self._possible, work, limit + 1)
        most = self.length - self.shape.num_stages + self.shape.vpp
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in range(k, self.shape.num_stages, self.shape.pp):
            more = busy[:, None] + work[s]
            own, count = np.nonzero((more <= limit) & (sizes.sum(axis=0)[:, None] <= most))
            sizes, busy = np.concatenate([sizes[:, own], count[None]]), more[own, count]
        return sizes[:, sizes.sum(axis=0) <= most]

    def taken(self, k: int, sizes: Array) -> Array:
        """[J, N] the first way that a device with such chunks may have room with; W: none."""
        known: dict[int, Array] = {}
        for memory in self._kinds:
            if id(memory) not in known:
                known[id(memory)] = self._bytes(k, sizes, memory)
        need = np.stack([known[id(memory)] for memory in self._kinds])
        short = need > capacity_bytes(self.instance)[:, None, None]
        taken: Array = np.logical_and.accumulate(short, axis=1).sum(axis=1)
        return taken

    def _bytes(self, k: int, sizes: Array, memory: LayerMemory) -> Array:
        """[W, N] that a device with chunks of these sizes needs at least."""
        where = np.arange(k, self.shape.num_stages, self.shape.pp)[:, None], sizes
        static, ways = self._memory(memory)
        most = self.prover.chunk_ways(self.shape).most_held(k, self.share)
        once = static[where].sum(axis=0) + memory.fixed_bytes
        return np.stack(
            [
                once + (most @ kept[where]).max(axis=0) + largest[where].max(axis=0)
                for kept, largest in ways
            ]
        )
