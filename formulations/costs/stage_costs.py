"""A stage is an edge: what layers [start, end) cost on a GPU of a node group, at a place in a plan.

The place decides how many micro-batches a stage keeps for its backward passes, and so what has to
be recomputed: of the ways that its configuration allows, the one that takes least time among those
that fit (Korthikanti et al. 2023, section 5: recompute no more than memory asks for).

A stage with a device to itself recomputes by the one of least time, of the ways that fit.

none       keeps everything
selective  recomputes the core attention of every block
full       keeps the input of the first n blocks alone, for the least n that fits (Megatron-LM's
           `--recompute-method block`); of all blocks where nothing else is allowed than that

More recomputation lengthens backward passes and nothing else, so no plan of the configuration with
another choice has a shorter step: choices need no states of a search.

Time and room are monotone: fewer layers, fewer micro-batches or more memory never take more
recomputation. Proof: what fits for [a, b) with the first e - a blocks recomputed fits for fewer
layers with the same blocks, as far as they are among them.

A device with several chunks of layers recomputes the least that fits beside all of them. The chunks
share one memory, and all are recomputed the same way, in all their blocks: the first way of the
configuration, least time first, with which the device has room at its fullest moment. Each way
takes no less time than those before it on every block, so no plan of the configuration in which
chunks of a device recompute alike has a shorter step. `full` of the first blocks alone is for
stages that have a device to themselves.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from formulations.costs.intervals import Mask, sums_before
from formulations.costs.memory import HeldBytes, MemoryParts
from formulations.costs.tables import Array, CostTables
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from formulations.schedules.registry import Moments, held, stage_moments


def least_recomputed(tables: CostTables, layers: tuple[int, int], way: int = 0) -> Recomputed:
    """What a stage recomputes if memory is no object, or in all blocks in a way, by number."""
    blocks = int(tables.is_block[slice(*layers)].sum())
    name = tables.config.recompute[way if blocks else 0]  # without blocks all are alike
    return Recomputed(way=name, blocks=0 if name == "none" else blocks)


def recomputed_ns(
    tables: CostTables, group: int, layers: tuple[int, int], recomputed: Recomputed
) -> int:
    """What a stage's backward pass takes longer for what it recomputes."""
    (start, end), blocks = layers, tables.blocks_before
    first = np.searchsorted(blocks, blocks[start] + recomputed.blocks)
    extra = tables.recompute_ns[tables.config.recompute.index(recomputed.way)]
    return int(extra[start : min(int(first), end), group].sum())


def memory_parts(
    tables: CostTables,
    layers: Sequence[tuple[int, int]],
    device: int,
    group: int,
    micro_batches: int,
    recomputed: Sequence[Recomputed],
) -> MemoryParts:
    """Memory per GPU of a device of a replica with these layers [start, end), per chunk."""
    config = tables.config
    moments = held(config.schedule, config.pp, device, micro_batches, *config.chunking)
    return tables.memory[group].parts(layers, moments, tables.is_block, recomputed)


#: Larger than any time in ns, small enough that sums of a few do not overflow.
NEVER = np.int64(1) << 60


class StageCosts:
    """Costs of the stages of one configuration.

    start, end: layer boundaries, [N] of stages with a device to themselves, [v, N] of the chunks of
    devices.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self._known: dict[tuple[int, Moments], Array] = {}

    @cached_property
    def _held(self) -> list[HeldBytes]:
        """[J], one for groups with the same memory."""
        held_bytes = {id(memory): HeldBytes(memory) for memory in self.tables.memory}
        return [held_bytes[id(memory)] for memory in self.tables.memory]

    @cached_property
    def _extra(self) -> list[Array]:
        """Per way [n, J] backward ns beyond the least, before each layer boundary."""
        return [sums_before(extra, axis=0) for extra in self.tables.recompute_ns]

    @property
    def has_choice(self) -> bool:
        """Whether stages of the configuration may differ in what they recompute."""
        return len(self.ways) > 1

    @property
    def shares_memory(self) -> bool:
        """Whether stages lie on a device with others, with which they choose alike."""
        return self.tables.config.vpp > 1

    @property
    def ways(self) -> tuple[Recompute, ...]:
        """The ways to recompute that the configuration allows, least time first."""
        return self.tables.config.recompute

    def moments(self, stage: int, micro_batches: int) -> Moments:
        """What a virtual stage holds at its fullest moments."""
        config = self.tables.config
        return stage_moments(config.schedule, config.pp, stage, micro_batches, *config.chunking)

    def extra(self, group: int, stage: int, micro_batches: int) -> Array:
        """[n, n] ns for what a stage recomputes on a group; NEVER where it has no room.

        Of replicas with so many micro-batches. Chunks of one device are looked at one by one:
        what all of them together recompute takes each no less.
        """
        return self.extra_of(group, self.moments(stage, micro_batches))

    def extra_of(self, group: int, moments: Moments) -> Array:
        """The same of a stage that holds so much, wherever it stands."""
        key = group, moments
        if key not in self._known:
            size = self.tables.num_layers + 1
            extra = np.zeros((size, size), dtype=np.int64)
            start, end = np.triu_indices(size, k=1)
            extra[start, end] = self._choose(*key, start, end)[0]
            self._known[key] = extra
        return self._known[key]

    def extra_of_devices(self, groups: Array, micro_batches: int, splits: Array) -> Array:
        """[S, C, N] ns beyond the least of splits [N, S + 1] with the devices on groups [p, C].

        Of chunks that recompute alike; where nothing fits as if the first way did.
        """
        p, columns = groups.shape
        extra = np.zeros((splits.shape[1] - 1, columns, len(splits)), dtype=np.int64)
        for device, row in enumerate(groups if self.has_choice else ()):
            start, end = splits[:, device:-1:p].T, splits[:, device + 1 :: p].T
            for group in sorted({*row.tolist()}):
                way, _ = self.way_of_chunks(device, group, micro_batches, start, end)
                if way.any():
                    sums = np.stack([by_way[:, group] for by_way in self._extra])
                    of_chunks = sums[way, end] - sums[way, start]
                    extra[device::p, row == group] = of_chunks[:, None]
        return extra

    def recomputed(
        self, device: int, group: int, micro_batches: int, chunks: Sequence[tuple[int, int]]
    ) -> list[Recomputed]:
        """What a device recomputes on a group in each of its chunks of layers.

        As little as fits, or as may be if nothing does. Alike for all of a configuration without
        choice.
        """
        if not self.shares_memory:
            moments = self.moments(device, micro_batches)
            return [self.recomputed_of(group, moments, layers) for layers in chunks]
        start, end = np.array(chunks).T[..., None]
        way, _ = self.way_of_chunks(device, group, micro_batches, start, end)
        return [least_recomputed(self.tables, layers, int(way[0])) for layers in chunks]

    def recomputed_of(self, group: int, moments: Moments, layers: tuple[int, int]) -> Recomputed:
        """The same of a stage that has a device for itself and holds so much."""
        if not self.has_choice:
            return least_recomputed(self.tables, layers)
        start, end = (np.array([boundary]) for boundary in layers)
        _, way, blocks = map(int, np.ravel(self._choose(group, moments, start, end)))
        return Recomputed(way=self.ways[way], blocks=blocks)

    def _room(self, group: int) -> int:
        """Bytes of a GPU for what depends on its layers."""
        return int(self.tables.capacity_bytes[group]) - self._held[group].memory.fixed_bytes

    def way_of_chunks(
        self, device: int, group: int, micro_batches: int, start: Array, end: Array
    ) -> tuple[Array, Mask]:
        """[N] the first way with room for all chunks, of all if none has; and whether it has.

        Of replicas with so many micro-batches. Fewer chunks than v are the first of a device.
        """
        config, sums = self.tables.config, self._held[group]
        moments = held(config.schedule, config.pp, device, micro_batches, *config.chunking)
        way = np.zeros(start.shape[1], dtype=np.int64)
        fits = np.zeros(len(way), dtype=bool)
        for index in range(len(self.ways)):
            without = np.flatnonzero(~fits)
            first, last = (start[:, without], end[:, without]) if index else (start, end)
            fitting = without[sums.need(index, moments, first, last) <= self._room(group)]
            way[fitting], fits[fitting] = index, True
            if len(fitting) == len(without):
                break
        return way, fits

    def _choose(self, group: int, moments: Moments, start: Array, end: Array) -> Array:
        """[3, N] what stages [N] recompute on a GPU of the group that holds so much.

        Backward ns beyond the config's least, NEVER where nothing fits; way, by number, then the
        first; blocks.
        """
        extra, blocks = self._in_all_blocks(0, group, moments, start, end)
        way = np.zeros_like(extra)
        without = np.flatnonzero(extra >= NEVER)
        if len(self.ways) == 1 or not len(without):
            return np.stack([extra, way, blocks])
        bounds = start[without], end[without]
        for index, name in enumerate(self.ways):
            options = [self._in_all_blocks(index, group, moments, *bounds)] if index else []
            if name == "full" and self.ways[0] == "none" and not self.shares_memory:
                options.append(self._in_first_blocks(index, group, moments, *bounds))
            for time, count in options:
                better = time < extra[without]
                extra[without[better]], blocks[without[better]] = time[better], count[better]
                way[without[better]] = index
        return np.stack([extra, way, blocks])

    def _in_all_blocks(
        self, way: int, group: int, moments: Moments, start: Array, end: Array
    ) -> tuple[Array, Array]:
        """Backward ns beyond the least, and blocks, if a way is taken for all blocks."""
        need = self._held[group].need(way, moments, start[None], end[None])
        extra = self._extra[way][:, group]
        time = np.where(need <= self._room(group), extra[end] - extra[start], NEVER)
        recomputes = self.ways[way] != "none"
        return time, self.tables.num_blocks(start, end) * recomputes

    def _in_first_blocks(
        self, way: int, group: int, moments: Moments, start: Array, end: Array
    ) -> tuple[Array, Array]:
        """The same if the first blocks are recomputed, as few as fit, and no others.

        What is kept falls with the number of these blocks, the workspace grows: that of one layer.
        So for each size of it, the least number with which everything fits at this size.
        """
        sums, room = self._held[group], self._room(group)
        spared = sums.activation[0] - sums.activation[way]
        kept = sums.activation[0][end] - sums.activation[0][start]
        static = sums.static[end] - sums.static[start]
        waiting = sums.put_off[end] - sums.put_off[start]
        last = np.full(len(start), len(spared), dtype=np.int64)
        layers = np.concatenate([sums.memory.kept[i].workspace_bytes for i in (0, way)])
        for size in sorted({*layers.tolist()}):
            first = start
            for in_flight, late in moments:
                # Boundary up to which recomputed blocks spare what is too much at this moment
                over = static + in_flight * kept + late * waiting + size - room
                goal = spared[start] + -(-over // max(in_flight, 1))
                reach = (
                    np.searchsorted(spared, goal) if in_flight else np.full_like(last, len(spared))
                )
                first = np.maximum(first, np.where(over > 0, reach, start))
            inside = np.minimum(first, end)
            largest = np.maximum(sums.largest[way][start, inside], sums.largest[0][inside, end])
            valid = (first <= end) & (largest <= size)
            last = np.where(valid, np.minimum(last, first), last)
        extra, ends = self._extra[way][:, group], np.minimum(last, end)
        time = np.where(last <= end, extra[ends] - extra[start], NEVER)
        return time, self.tables.num_blocks(start, ends)
