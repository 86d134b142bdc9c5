"""What devices with several chunks of layers recompute: all blocks of all chunks in one way.

Of the ways of the shape the first with which the device has room, when it holds most.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from formulations.costs.compute import LayerTimes
from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory, capacity_bytes
from formulations.instance import Instance
from formulations.plan import Recomputed, Shape
from formulations.schedules import held

Array = NDArray[np.int64]
#: What N devices have in a table [n, n] of layers [a, b), by chunk [v, N].
Look = Callable[[Array], Array]


class ChunkWays:
    """The devices of one shape; J node groups, W ways, n = L + 1."""

    def __init__(
        self,
        instance: Instance,
        shape: Shape,
        times: Sequence[LayerTimes],
        memory: Sequence[LayerMemory],
    ) -> None:
        self.shape, self.memory, self._times = shape, memory, times
        self.capacity = capacity_bytes(instance)
        self._blocks = np.array([layer.is_block for layer in instance.workload.layers])
        self._static = {id(own): interval_sums(own.static_bytes) for own in memory}
        self._kept = {
            (id(own), w): (
                interval_sums(way.activation_bytes),
                interval_maxima(way.workspace_bytes),
            )
            for own in memory
            for w, way in enumerate(own.kept)
        }

    @cached_property
    def extra(self) -> Array:
        """[W, J, n, n] ns of a backward pass through layers [a, b) beyond that of the first way."""
        more = (own.backward_ns - self._times[0].backward_ns for own in self._times)
        return np.stack([interval_sums(own.T) for own in more])

    def most_held(self, device: int, share: int) -> Array:
        """[H, v] micro-batches of every chunk in flight at once, at its fullest moments."""
        shape = self.shape
        return held(shape.schedule, shape.pp, device, share, shape.vpp).whole

    def taken(self, device: int, group: int, share: int, look: Look) -> Array:
        """[N] the first way with room on a group; W where none has."""
        own, most = self.memory[group], self.most_held(device, share)
        once = own.fixed_bytes + look(self._static[id(own)]).sum(axis=0)
        tables = [self._kept[id(own), w] for w in range(len(own.kept))]
        need = [
            once + (most @ look(kept)).max(axis=0) + look(largest).max(axis=0)
            for kept, largest in tables
        ]
        short = np.stack(need) > self.capacity[group]
        taken: Array = np.logical_and.accumulate(short).sum(axis=0)
        return taken

    def extra_ns(self, groups: Array, share: int, ends: Array) -> Array:
        """[S, N] ns that stages recompute for, on groups [S, N], with boundaries [S + 1, N].

        None where nothing has room.
        """
        found, p = np.zeros(groups.shape, dtype=np.int64), self.shape.pp
        for device in range(p):
            first, last = ends[device:-1:p], ends[device + 1 :: p]  # [v, N] layers
            for j in np.unique(groups[device]).tolist():
                own = np.flatnonzero(groups[device] == j)
                layers = first[:, own], last[:, own]
                way = self.taken(device, j, share, itemgetter(layers)) % len(self._times)
                found[device::p, own] = self.extra[way, j, *layers]
        return found

    def chosen(
        self, device: int, group: int, share: int, chunks: Sequence[tuple[int, int]]
    ) -> list[Recomputed]:
        """What every chunk recomputes; the least where nothing has room."""
        look = itemgetter(tuple(np.array(chunks).T[..., None]))
        index = int(self.taken(device, group, share, look)[0]) % len(self._times)
        blocks = [int(self._blocks[slice(*own)].sum()) for own in chunks]
        ways = [self.shape.recompute[index if count else 0] for count in blocks]
        return [
            Recomputed(way=way, blocks=count * (way != "none"))
            for way, count in zip(ways, blocks, strict=True)
        ]
