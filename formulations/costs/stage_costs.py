"""A stage is an edge: what layers [start, end) cost on a GPU of a node group, at a place in a plan.

The place decides how many micro-batches a stage keeps for its backward passes, and so what has to
be recomputed: of the ways that its shape allows, the one that takes least time among those that
fit (Korthikanti et al. 2023, section 5: recompute no more than memory asks for).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from formulations.costs.chunk_costs import ChunkCosts
from formulations.costs.held_bytes import HeldBytes, Moments, before
from formulations.costs.recompute_choice import NEVER, RecomputeChoice
from formulations.costs.recompute_costs import least_recomputed
from formulations.costs.tables import Array, CostTables
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from formulations.schedules import stage_moments


class StageCosts:
    """Costs of the stages of one shape; start, end: [N] layer boundaries."""

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self._known: dict[tuple[int, Moments], Array] = {}

    @cached_property
    def _held(self) -> list[HeldBytes]:
        """[J], one for groups with the same memory."""
        held = {id(memory): HeldBytes(memory) for memory in self.tables.memory}
        return [held[id(memory)] for memory in self.tables.memory]

    @cached_property
    def _extra(self) -> list[Array]:
        """Per way [n, J] backward ns beyond the least, before each layer boundary."""
        return [before(extra) for extra in self.tables.recompute_ns]

    @cached_property
    def chunks(self) -> ChunkCosts:
        """What devices with several chunks recompute."""
        return ChunkCosts(self.tables, self._held, self._extra)

    @cached_property
    def _alone(self) -> RecomputeChoice:
        """What stages with a device to themselves recompute."""
        return RecomputeChoice(self.tables, self._held, self._extra)

    @cached_property
    def forward(self) -> Array:
        """[n, J] ns before each layer boundary, per micro-batch: a stage takes the difference."""
        return before(self.tables.forward_ns)

    @cached_property
    def backward(self) -> Array:
        """[n, J] the same of the backward pass, where as little is recomputed as may be."""
        return before(self.tables.backward_ns)

    @cached_property
    def weight(self) -> Array:
        """[n, J] of that, for weight gradients."""
        return before(self.tables.weight_ns)

    @cached_property
    def optimizer(self) -> Array:
        """[n, J] the same of the optimizer, per step."""
        return before(self.tables.optimizer_ns)

    @property
    def has_choice(self) -> bool:
        """Whether stages of the shape may differ in what they recompute."""
        return len(self.ways) > 1

    @property
    def shares_memory(self) -> bool:
        """Whether stages lie on a device with others, with which they choose: `ChunkCosts`."""
        return self.tables.shape.vpp > 1

    @property
    def ways(self) -> tuple[Recompute, ...]:
        """The ways to recompute that the shape allows, least time first."""
        return self.tables.shape.recompute

    def moments(self, stage: int, micro_batches: int) -> Moments:
        """What a virtual stage holds at its fullest moments."""
        shape = self.tables.shape
        return stage_moments(shape.schedule, shape.pp, stage, micro_batches, shape.vpp)

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
            extra[start, end] = self._alone.choose(*key, start, end).extra_ns
            self._known[key] = extra
        return self._known[key]

    def extra_of_splits(self, groups: Sequence[int], micro_batches: int, splits: Array) -> Array:
        """[S, N] the same of splits [N, S + 1] with the devices on groups [p].

        Where there is no room, as if as little were recomputed as may be.
        """
        if not self.has_choice:
            return np.zeros((splits.shape[1] - 1, len(splits)), dtype=np.int64)
        if self.shares_memory:
            lane = np.array(groups)[:, None]
            return self.chunks.extra(lane, micro_batches, splits)[:, 0]
        rows = (self.extra(j, k, micro_batches) for k, j in enumerate(groups))
        own = [row[splits[:, k], splits[:, k + 1]] for k, row in enumerate(rows)]
        return np.where(np.array(own) < NEVER, own, 0)

    def recomputed(
        self, device: int, group: int, micro_batches: int, chunks: Sequence[tuple[int, int]]
    ) -> list[Recomputed]:
        """What a device recomputes on a group in each of its chunks of layers.

        As little as fits, or as may be if nothing does. Alike for all of a shape without choice.
        """
        if not self.shares_memory:
            moments = self.moments(device, micro_batches)
            return [self.recomputed_of(group, moments, layers) for layers in chunks]
        start, end = np.array(chunks).T[..., None]
        way, fits = self.chunks.way(device, group, micro_batches, start, end)
        if not self.has_choice or not fits[0]:
            return [least_recomputed(self.tables, layers) for layers in chunks]
        blocks = self.tables.num_blocks(start, end)[:, 0].tolist()
        return [self._whole_of(int(way[0]), count) for count in blocks]

    def recomputed_of(self, group: int, moments: Moments, layers: tuple[int, int]) -> Recomputed:
        """The same of a stage that has a device for itself and holds so much."""
        if not self.has_choice:
            return least_recomputed(self.tables, layers)
        bounds = (np.array([boundary]) for boundary in layers)
        found = self._alone.choose(group, moments, *bounds)
        if found.fits[0]:
            return Recomputed(way=self.ways[int(found.way[0])], blocks=int(found.blocks[0]))
        return least_recomputed(self.tables, layers)

    def _whole_of(self, way: int, blocks: int) -> Recomputed:
        """A way for all blocks of a chunk; of none the first one, as all are alike."""
        name = self.ways[way if blocks else 0]
        return Recomputed(way=name, blocks=0 if name == "none" else blocks)
