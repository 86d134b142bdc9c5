"""What a device with several chunks of layers recomputes: the least that fits beside all of them.

The chunks share one memory, and all are recomputed the same way, in all their blocks: the first way
of the shape, least time first, with which the device has room at its fullest moment. Each way takes
no less time than those before it on every block, so no plan of the shape in which chunks of a
device recompute alike has a shorter step. `full` of the first blocks alone is for stages that have
a device to themselves.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.held_bytes import HeldBytes
from formulations.costs.tables import Array, CostTables
from formulations.schedules import held

Mask = NDArray[np.bool_]


class ChunkCosts:
    """Devices of one shape; v chunks each, start, end: [v, N] layer boundaries."""

    def __init__(
        self, tables: CostTables, held_bytes: Sequence[HeldBytes], extra: Sequence[Array]
    ) -> None:
        """`extra`: per way [n, J] backward ns beyond the least, before each layer boundary."""
        self.tables, self._held, self._extra = tables, held_bytes, extra

    def way(
        self, device: int, group: int, micro_batches: int, start: Array, end: Array
    ) -> tuple[Array, Mask]:
        """[N] the first way with room on a group, of all if none has; and whether it has.

        Of replicas with so many micro-batches. Fewer chunks than v are the first of a device.
        """
        shape, own = self.tables.shape, self._held[group]
        whole = held(shape.schedule, shape.pp, device, micro_batches, shape.vpp).whole
        room = int(self.tables.capacity_bytes[group]) - own.memory.fixed_bytes
        way = np.zeros(start.shape[1], dtype=np.int64)
        fits = np.zeros(len(way), dtype=bool)
        for index, (kept, largest) in enumerate(zip(own.activation, own.largest, strict=True)):
            left = np.flatnonzero(~fits)
            first, last = (start[:, left], end[:, left]) if index else (start, end)
            need = (own.static[last] - own.static[first]).sum(axis=0)
            need += (whole[:, : len(start)] @ (kept[last] - kept[first])).max(axis=0)
            need += largest[first, last].max(axis=0)
            found = left[need <= room]
            way[found], fits[found] = index, True
            if len(found) == len(left):
                break
        return way, fits

    def extra(self, groups: Array, micro_batches: int, splits: Array) -> Array:
        """[S, C, N] ns beyond the least of splits [N, S + 1] with the devices on groups [p, C].

        Where nothing fits as if the first way did.
        """
        p, lanes = groups.shape
        found = np.zeros((splits.shape[1] - 1, lanes, len(splits)), dtype=np.int64)
        for device, row in enumerate(groups):
            start, end = splits[:, device:-1:p].T, splits[:, device + 1 :: p].T
            for group in np.unique(row).tolist():
                way, _ = self.way(device, group, micro_batches, start, end)
                if way.any():
                    sums = np.stack([extra[:, group] for extra in self._extra])
                    own = sums[way, end] - sums[way, start]
                    found[device::p, row == group] = own[:, None]
        return found
