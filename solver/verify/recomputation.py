"""What stages recompute, worked out option by option: a way, and how many of the first blocks.

A stage takes the option of least time that has room. No other option makes a step shorter, so a
plan of the shape that does without a claim may be taken to have these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.compute import LayerTimes
from formulations.costs.intervals import interval_maxima
from formulations.costs.memory import LayerMemory, capacity_bytes
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from solver.verify.families import NEVER

Array = NDArray[np.int64]
Layers = tuple[Array, Array]  #: first, and one after the last
Moments = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Option:
    """Of N stages: time [N, J] ns beyond the least, kept and once: bytes per micro-batch, or not.

    possible: [N] whether there are so many blocks to recompute.
    """

    way: Recompute
    blocks: Array
    time: Array
    kept: Array
    once: Array
    possible: NDArray[np.bool_]


def _before(values: Array) -> Array:
    """[L + 1, ..] sum of `values` [L, ..] before each boundary."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


class Recomputation:
    """The stages of shapes with one micro-batch and memory.

    partly: whether some of the blocks of a stage may be recomputed alone.
    """

    def __init__(
        self,
        instance: Instance,
        ways: Sequence[Recompute],
        times: Sequence[LayerTimes],
        memory: LayerMemory,
        partly: bool = True,
    ) -> None:
        is_block = np.array([layer.is_block for layer in instance.workload.layers])
        self.ways, self.fixed_bytes = tuple(ways), memory.fixed_bytes
        self._some = partly and self.ways[0] == "none"
        self.capacity = capacity_bytes(instance)
        self._blocks = _before(is_block.astype(np.int64))
        self._time = [_before(own.backward_ns - times[0].backward_ns) for own in times]
        self._kept = [_before(own.activation_bytes) for own in memory.kept]
        self._largest = [interval_maxima(own.workspace_bytes) for own in memory.kept]
        self._static, self._put_off = _before(memory.static_bytes), _before(memory.put_off_bytes)
        self._known: dict[tuple[tuple[int, int], ...], Array] = {}

    def _partly(self, way: int) -> bool:
        """Whether a way may be taken for some blocks only."""
        return self.ways[way] == "full" and self._some

    def _options(self, layers: Layers) -> Iterator[Option]:
        """All of them, for each stage."""
        most = int(self._number(layers).max(initial=0))
        for way in range(len(self.ways)):
            for count in range(1 if self._partly(way) else most, most + 1):
                yield self._option(way, np.array(count), layers)

    def _number(self, layers: Layers) -> Array:
        """[N] blocks."""
        number: Array = self._blocks[layers[1]] - self._blocks[layers[0]]
        return number

    def _option(self, way: int, count: Array, layers: Layers) -> Option:
        """The first so many blocks [N] in this way, what follows in the first one."""
        first, last = layers
        behind = np.searchsorted(self._blocks, self._blocks[first] + count)
        end, blocks = np.minimum(behind, last), self._number(layers)
        kept, largest = self._kept[way], self._largest[way]
        return Option(
            way=self.ways[way],
            blocks=np.minimum(blocks, count) * (self.ways[way] != "none"),
            time=self._time[way][end] - self._time[way][first],
            kept=kept[end] - kept[first] + self._kept[0][last] - self._kept[0][end],
            once=np.maximum(largest[first, end], self._largest[0][end, last]),
            possible=(blocks >= count) | (not self._partly(way)),
        )

    def _need(self, kept: Array, once: Array, layers: Layers, moments: Moments) -> Array:
        """[N] bytes per GPU."""
        first, last = layers
        put_off = self._put_off[last] - self._put_off[first]
        most = np.max([whole * kept + late * put_off for whole, late in moments], axis=0)
        need: Array = self._static[last] - self._static[first] + self.fixed_bytes + most + once
        return need

    @cached_property
    def _all(self) -> Layers:
        return np.triu_indices(len(self._blocks), k=1)

    def extra(self, moments: tuple[tuple[int, int], ...]) -> Array:
        """[J, n, n] ns beyond the least; NEVER where there is no room; n = L + 1."""
        if moments not in self._known:
            size = len(self._blocks)
            found = np.zeros((len(self.capacity), size, size), dtype=np.int64)
            found[:, *self._all] = self._least(self._all, moments)
            self._known[moments] = found
        return self._known[moments]

    def _least(self, layers: Layers, moments: Moments) -> Array:
        """[J, N] least time of an option with room: 0 where the first option has room."""
        best = np.full((len(self.capacity), len(layers[0])), NEVER)
        for way in range(len(self.ways)):
            if not self._partly(way):
                option = self._option(way, self._number(layers), layers)
                best = np.minimum(best, self._time_with_room(option, layers, moments))
                continue
            for j, own in enumerate(best):
                left = np.flatnonzero(own)
                count = self._fewest(way, j, (layers[0][left], layers[1][left]), moments)
                while len(left):
                    some = layers[0][left], layers[1][left]
                    option = self._option(way, count, some)
                    time = self._time_with_room(option, some, moments)[j]
                    own[left] = np.minimum(own[left], time)
                    # more blocks take no less time
                    more = (time == NEVER) & (count < self._number(some))
                    left, count = left[more], count[more] + 1
        return best

    def _time_with_room(self, option: Option, layers: Layers, moments: Moments) -> Array:
        """[J, N] time of an option; NEVER where it has no room."""
        need = self._need(option.kept, option.once, layers, moments)
        room = (need <= self.capacity[:, None]) & option.possible
        return np.where(room, option.time.T, NEVER)

    def _fewest(self, way: int, group: int, layers: Layers, moments: Moments) -> Array:
        """[N] with fewer of the first blocks in this way there is no room on a group; 1 at least.

        The workspace is no less than that of the first block.
        """
        first, last = layers
        behind = np.searchsorted(self._blocks, self._blocks[first] + 1)
        once = self._largest[way][first, np.minimum(behind, last)]
        room = self.capacity[group] - self._need(0 * once, once, layers, [(0, 0)])
        put_off = self._put_off[last] - self._put_off[first]
        kept = np.min([(room - late * put_off) // n for n, late in moments if n], axis=0)
        spared = self._kept[0] - self._kept[way]
        asked = spared[first] + self._kept[0][last] - self._kept[0][first] - kept
        reached = np.searchsorted(np.maximum.accumulate(spared), asked)
        blocks = np.append(self._blocks, NEVER)[reached] - self._blocks[first]
        fewest: Array = np.maximum(blocks, 1)
        return fewest

    @cached_property
    def most_held(self) -> Array:
        """[J, n, n] most micro-batches in flight, none of them put off, that any option holds."""
        size = len(self._blocks)
        found = np.full((len(self.capacity), size, size), NEVER)
        best = np.zeros((len(self.capacity), len(self._all[0])), dtype=np.int64)
        for option in self._options(self._all):
            need = self._need(0 * option.kept, option.once, self._all, [(0, 0)])
            room = self.capacity[:, None] - need
            kept = np.maximum(option.kept, 1)
            held = np.where(option.kept > 0, room // kept, NEVER)
            best = np.maximum(best, np.where((room >= 0) & option.possible, held, 0))
        found[:, *self._all] = best
        return found

    def chosen(self, group: int, moments: Moments, layers: tuple[int, int]) -> Recomputed:
        """What a stage recomputes on a group; the first option where none has room."""
        own = np.array([layers[0]]), np.array([layers[1]])
        best, least = None, NEVER
        for option in self._options(own):
            need = self._need(option.kept, option.once, own, moments)
            room = int(need[0]) <= int(self.capacity[group])
            time = int(option.time[0, group])
            if best is None or (room and option.possible[0] and time < least):
                best, least = option, time if room else NEVER
        assert best is not None  # the first option always is possible
        return Recomputed(way=best.way, blocks=int(best.blocks[0]))


class ByGroup:
    """The same where node groups have degrees of their own; parts: [J]."""

    def __init__(self, parts: Sequence[Recomputation]) -> None:
        self.parts = parts

    def extra(self, moments: tuple[tuple[int, int], ...]) -> Array:
        """[J, n, n] as of `Recomputation`."""
        return np.stack([part.extra(moments)[j] for j, part in enumerate(self.parts)])

    @property
    def most_held(self) -> Array:
        """[J, n, n] as of `Recomputation`."""
        return np.stack([part.most_held[j] for j, part in enumerate(self.parts)])

    def chosen(self, group: int, moments: Moments, layers: tuple[int, int]) -> Recomputed:
        """As of `Recomputation`."""
        return self.parts[group].chosen(group, moments, layers)
