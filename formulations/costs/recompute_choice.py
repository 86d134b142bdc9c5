"""What a stage with a device to itself recomputes: of the ways that fit, the one of least time.

none       keeps everything
selective  recomputes the core attention of every block
full       keeps the input of the first n blocks alone, for the least n that fits (Megatron-LM's
           `--recompute-method block`); of all blocks where nothing else is allowed than that

More recomputation lengthens backward passes and nothing else, so no plan of the shape with another
choice has a shorter step: choices need no states of a search.

Time and room are monotone: fewer layers, fewer micro-batches or more memory never take more
recomputation. Proof: what fits for [a, b) with the first e - a blocks recomputed fits for fewer
layers with the same blocks, as far as they are among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.costs.held_bytes import HeldBytes, Moments
from formulations.costs.tables import Array, CostTables

Mask = NDArray[np.bool_]

#: Larger than any time in ns, small enough that sums of a few do not overflow.
NEVER = np.int64(1) << 60


@dataclass(frozen=True)
class Choices:
    """Of N stages: backward ns beyond the shape's least, NEVER where nothing fits; way; blocks."""

    extra_ns: Array
    way: Array  #: index into the ways of the shape
    blocks: Array

    @property
    def fits(self) -> Mask:
        """[N] whether there is room at all."""
        return self.extra_ns < NEVER


class RecomputeChoice:
    """Choices of the stages of one shape; start, end: [N] layer boundaries."""

    def __init__(
        self, tables: CostTables, held: Sequence[HeldBytes], extra: Sequence[Array]
    ) -> None:
        """`extra`: per way [n, J] backward ns beyond the least, before each layer boundary."""
        self.tables, self._held, self._extra = tables, held, extra
        self.ways = tables.shape.recompute

    def choose(self, group: int, moments: Moments, start: Array, end: Array) -> Choices:
        """What stages [N] recompute on a GPU of the group that holds so much.

        Looked at are those without room that have some if nothing but the least is kept.
        """
        held = self._held[group]
        room = int(self.tables.capacity_bytes[group]) - held.memory.fixed_bytes
        extra, blocks = self._whole(0, group, moments, room, start, end)
        way = np.zeros_like(extra)
        least = held.static[end] - held.static[start]
        least += held.most(held.least_kept, moments, start, end)
        left = np.flatnonzero((extra >= NEVER) & (least <= room))
        if len(self.ways) == 1 or not len(left):
            return Choices(extra, way, blocks)
        own = start[left], end[left]
        for index, name in enumerate(self.ways):
            options = [self._whole(index, group, moments, room, *own)] if index else []
            if name == "full" and self.ways[0] == "none" and self.tables.shape.vpp == 1:
                options.append(self._partial(index, group, moments, room, *own))
            for time, count in options:
                better = time < extra[left]
                extra[left[better]], blocks[left[better]] = time[better], count[better]
                way[left[better]] = index
        return Choices(extra, way, blocks)

    def _whole(
        self, way: int, group: int, moments: Moments, room: int, start: Array, end: Array
    ) -> tuple[Array, Array]:
        """Backward ns beyond the least, and blocks, if a way is taken for all blocks."""
        held = self._held[group]
        need = held.static[end] - held.static[start] + held.largest[way][start, end]
        need += held.most(held.activation[way], moments, start, end)
        extra = self._extra[way][:, group]
        time = np.where(need <= room, extra[end] - extra[start], NEVER)
        recomputes = self.ways[way] != "none"
        return time, self.tables.num_blocks(start, end) * recomputes

    def _partial(
        self, way: int, group: int, moments: Moments, room: int, start: Array, end: Array
    ) -> tuple[Array, Array]:
        """The same if the first blocks are recomputed, as few as fit, and no others.

        What is kept falls with the number of these blocks, the workspace grows: that of one block.
        So for each size of it, the least number with which everything fits at this size.
        """
        held = self._held[group]
        spared = held.activation[0] - held.activation[way]
        kept = held.activation[0][end] - held.activation[0][start]
        static = held.static[end] - held.static[start]
        waiting = held.put_off[end] - held.put_off[start]
        last = np.full(len(start), len(spared), dtype=np.int64)
        for size in np.unique(held.memory.kept[way].workspace_bytes).tolist():
            first = start
            for whole, late in moments:
                over = static + whole * kept + late * waiting + size - room
                short = over > 0
                goal = spared[start] + -(-over // max(whole, 1))
                reach = np.searchsorted(spared, goal) if whole else np.full_like(last, len(spared))
                first = np.maximum(first, np.where(short, reach, start))
            inside = np.minimum(first, end)
            valid = (first <= end) & (held.largest[way][start, inside] <= size)
            last = np.where(valid, np.minimum(last, first), last)
        extra, ends = self._extra[way][:, group], np.minimum(last, end)
        time = np.where(last <= end, extra[ends] - extra[start], NEVER)
        return time, self.tables.num_blocks(start, ends)
