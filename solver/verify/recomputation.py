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
from formulations.costs.memory import LayerMemory, capacity_bytes
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from solver.verify.lengths import NEVER

Array = NDArray[np.int64]
Layers = tuple[Array, Array]  #: first, and one after the last
Moments = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Option:
    """Of N stages: time [N, J] ns beyond the least, kept and once: bytes per micro-batch, or not.

    first: [N] whether there are so many blocks to recompute.
    """

    way: Recompute
    blocks: Array
    time: Array
    kept: Array
    once: Array
    possible: NDArray[np.bool_]


def sums(values: Array, layers: Layers) -> Array:
    """[N, ..] sum of `values` [L, ..] over layers [a, b)."""
    before = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    total: Array = before[layers[1]] - before[layers[0]]
    return total


class Recomputation:
    """The stages of shapes with the same degrees, micro-batch and memory."""

    def __init__(
        self,
        instance: Instance,
        ways: Sequence[Recompute],
        times: Sequence[LayerTimes],
        memory: Sequence[LayerMemory],
    ) -> None:
        self.ways, self.times, self.memory = tuple(ways), times, memory
        #: node groups whose GPUs hold as much, by the first of them
        self.alike: dict[int, list[int]] = {}
        for j, own in enumerate(memory):
            first = next(i for i, one in enumerate(memory) if one is own)
            self.alike.setdefault(first, []).append(j)
        self.is_block = np.array([layer.is_block for layer in instance.workload.layers])
        self.capacity = capacity_bytes(instance)
        self._known: dict[tuple[tuple[int, int], ...], Array] = {}

    def _options(self, layers: Layers, memory: LayerMemory) -> Iterator[Option]:
        """All of them, for each stage."""
        blocks = sums(self.is_block.astype(np.int64), layers)
        least = self.times[0].backward_ns
        for name, times, kept in zip(self.ways, self.times, memory.kept, strict=True):
            partly = name == "full" and self.ways[0] == "none"
            most = int(blocks.max(initial=0))
            for count in range(1, most + 1) if partly else [most]:
                inside = layers[0], np.minimum(self._after(layers[0], count), layers[1])
                rest = inside[1], layers[1]
                activation, others = kept.activation_bytes, memory.kept[0].activation_bytes
                yield Option(
                    way=name,
                    blocks=np.minimum(blocks, count) * (name != "none"),
                    time=sums(times.backward_ns - least, inside),
                    kept=sums(activation, inside) + sums(others, rest),
                    once=np.maximum(
                        self._largest(kept.workspace_bytes, inside),
                        self._largest(memory.kept[0].workspace_bytes, rest),
                    ),
                    possible=blocks >= count if partly else np.ones(len(blocks), dtype=np.bool_),
                )

    def _after(self, first: Array, count: int) -> Array:
        """[N] the layer behind so many blocks from a first layer on."""
        number = np.concatenate([[0], np.cumsum(self.is_block)])
        behind = np.searchsorted(number, number[first] + count)
        return np.where(number[first] + count > number[-1], len(number), behind)

    def _largest(self, values: Array, layers: Layers) -> Array:
        """[N] largest of `values` [L] over layers [a, b); 0 without any."""
        largest = np.zeros(len(layers[0]), dtype=np.int64)
        for size in np.unique(values).tolist():
            largest[sums((values == size).astype(np.int64), layers) > 0] = size
        return largest

    def _need(self, option: Option, layers: Layers, moments: Moments, memory: LayerMemory) -> Array:
        """[N] bytes per GPU."""
        put_off = sums(memory.put_off_bytes, layers)
        most = np.max([whole * option.kept + late * put_off for whole, late in moments], axis=0)
        static = sums(memory.static_bytes, layers) + memory.fixed_bytes
        need: Array = static + most + option.once
        return need

    @cached_property
    def _all(self) -> Layers:
        return np.triu_indices(len(self.is_block) + 1, k=1)

    def extra(self, moments: tuple[tuple[int, int], ...]) -> Array:
        """[J, n, n] ns beyond the least; NEVER where there is no room; n = L + 1."""
        if moments not in self._known:
            size = len(self.is_block) + 1
            found = np.zeros((len(self.capacity), size, size), dtype=np.int64)
            for groups in self.alike.values():
                for j, least in zip(groups, self._least(self._all, moments, groups), strict=True):
                    found[j, *self._all] = least
            self._known[moments] = found
        return self._known[moments]

    def _least(self, layers: Layers, moments: Moments, groups: list[int]) -> Array:
        """[g, N] least time of an option with room: 0 where the first option has room.

        On g groups whose GPUs hold as much.
        """
        memory, capacity = self.memory[groups[0]], self.capacity[groups][:, None]
        best = np.full((len(groups), len(layers[0])), NEVER)
        options = self._options(layers, memory)
        room = self._need(next(options), layers, moments, memory) <= capacity
        best[room] = 0
        left = np.flatnonzero(~room.all(axis=0))
        rest = layers[0][left], layers[1][left]
        for option in self._options(rest, memory) if len(left) else ():
            room = self._need(option, rest, moments, memory) <= capacity
            time = np.where(room & option.possible, option.time.T[groups], NEVER)
            best[:, left] = np.minimum(best[:, left], time)
        return best

    @cached_property
    def most_held(self) -> Array:
        """[J, n, n] most micro-batches in flight, none of them put off, that any option holds."""
        size = len(self.is_block) + 1
        found = np.full((len(self.capacity), size, size), NEVER)
        for groups in self.alike.values():
            memory, capacity = self.memory[groups[0]], self.capacity[groups][:, None]
            best = np.zeros((len(groups), len(self._all[0])), dtype=np.int64)
            for option in self._options(self._all, memory):
                room = capacity - self._need(option, self._all, [(0, 0)], memory)
                kept = np.maximum(option.kept, 1)
                held = np.where(option.kept > 0, room // kept, NEVER)
                best = np.maximum(best, np.where((room >= 0) & option.possible, held, 0))
            for j, most in zip(groups, best, strict=True):
                found[j, *self._all] = most
        return found

    def chosen(self, group: int, moments: Moments, layers: tuple[int, int]) -> Recomputed:
        """What a stage recomputes on a group; the first option where none has room."""
        own = np.array([layers[0]]), np.array([layers[1]])
        best, least, memory = None, NEVER, self.memory[group]
        for option in self._options(own, memory):
            room = int(self._need(option, own, moments, memory)[0]) <= int(self.capacity[group])
            time = int(option.time[0, group])
            if best is None or (room and option.possible[0] and time < least):
                best, least = option, time if room else NEVER
        assert best is not None  # the first option always is possible
        return Recomputed(way=best.way, blocks=int(best.blocks[0]))
