"""Proofs that a shape cannot be run, or not faster than so, worked out again.

Whole numbers throughout, so that no bound is a rounding error too high.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.costs.compute import LayerTimes, TimeColumns
from formulations.costs.experts import ALONE, Members, members_of
from formulations.costs.intervals import interval_sums
from formulations.costs.memory import capacity_bytes, layer_memory
from formulations.costs.sharding import with_exchanges
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import GRADIENTS_SPLIT, Degrees, Plan, Recomputed, Shape, uniform_plan
from formulations.schedules import SCHEDULES, stage_moments
from formulations.space import Nodes, PlanSpace
from solver.verify.chunk_ways import ChunkWays
from solver.verify.families import NEVER
from solver.verify.recomputation import ByGroup, Recomputation

Array = NDArray[np.int64]


#: Degrees by node group, micro-batch size, recomputation.
TimesKey = tuple[tuple[Degrees, ...], int, Recompute, Members]
Chunks = tuple[tuple[int, int], ...]  #: layers of a device


def shape_key(instance: Instance, shape: Shape) -> TimesKey:
    """What layer times depend on where nothing is exchanged with every micro-batch."""
    members = members_of(instance, shape)
    return shape.degrees, shape.micro_batch, shape.recompute[0], members


class Prover:
    """Proofs for the shapes of one instance; what they share is worked out once.

    Where nodes decide on flash attention, those of a shape are `on` its nodes.
    """

    def __init__(self, space: PlanSpace) -> None:
        self._sides: dict[bool, Prover] = {}
        self.space = space
        self.instance = space.instance
        self.layers = space.instance.workload.layers
        self._columns = TimeColumns(self.instance)
        self.times = lru_cache(maxsize=None)(self._times)
        self._intervals = lru_cache(maxsize=None)(self._interval_times)
        self._memories: dict[tuple[object, ...], Recomputation | ByGroup] = {}
        self.chunk_ways = lru_cache(maxsize=None)(self._chunk_ways)

    def on(self, nodes_used: Nodes) -> "Prover":
        """The prover for shapes on these nodes."""
        own = self.instance.on(nodes_used)
        if own is self.instance:
            return self
        fused = own.workload.flash_attention
        if fused not in self._sides:
            self._sides[fused] = Prover(PlanSpace(own))
        return self._sides[fused]

    def _times(
        self, degrees: tuple[Degrees, ...], b: int, recompute: Recompute, members: Members = ALONE
    ) -> LayerTimes:
        return self._columns.times(degrees, b, recompute, members)

    def stage_times(self, shape: Shape) -> tuple[Array, Array, Array]:
        """[J, n, n] ns of layers [a, b): forward, backward, weight gradients that are put off.

        With as little recomputed as the shape allows.
        """
        splits = SCHEDULES[shape.schedule].splits_backward
        exchanges = shape.zero >= GRADIENTS_SPLIT
        known = shape if exchanges else shape_key(self.instance, shape)
        return self._intervals(known, splits)

    def times_of(self, shape: Shape) -> LayerTimes:
        """Layer times of a shape, with what its replicas exchange with every micro-batch."""
        return with_exchanges(self.instance, shape, self.times(*shape_key(self.instance, shape)))

    def _interval_times(self, known: Shape | TimesKey, splits: bool) -> tuple[Array, Array, Array]:
        times = self.times_of(known) if isinstance(known, Shape) else self.times(*known)
        weight = times.weight_ns * splits
        parts = (times.forward_ns, times.backward_ns - weight, weight)
        forward, backward, weight = (interval_sums(part.T) for part in parts)
        return forward, backward, weight

    @cached_property
    def enough_blocks(self) -> NDArray[np.bool_]:
        """[n, n] whether layers [a, b) may be a stage, memory aside."""
        blocks = interval_sums(np.array([layer.is_block for layer in self.layers], dtype=np.int64))
        layers = interval_sums(np.ones(len(self.layers), dtype=np.int64))
        least = 0 if self.instance.search.embedding_only_stages else 1
        return (layers >= 1) & (blocks >= least)

    def recomputation(self, shape: Shape) -> Recomputation | ByGroup:
        """What the stages of a shape recompute and have room for."""
        degrees, b, _, members = shape_key(self.instance, shape)
        own = (degrees, b, shape.pp == 1, shape.zero, shape.dp, shape.ep, members)
        key = (*own, shape.recompute, shape.vpp > 1)
        if key not in self._memories:
            times = [self.times(degrees, b, way, members) for way in shape.recompute]
            memory = layer_memory(self.instance, shape)
            known = {
                id(own): Recomputation(
                    self.instance, shape.recompute, times, own, partly=shape.vpp == 1
                )
                for own in memory
            }
            parts = [known[id(own)] for own in memory]
            self._memories[key] = parts[0] if len(known) == 1 else ByGroup(parts)
        return self._memories[key]

    def _chunk_ways(self, shape: Shape) -> ChunkWays:
        """What devices with several chunks recompute."""
        degrees, b, _, members = shape_key(self.instance, shape)
        times = [self.times(degrees, b, way, members) for way in shape.recompute]
        return ChunkWays(self.instance, shape, times, layer_memory(self.instance, shape))

    def extra(self, shape: Shape, stage: int, micro_batches: int) -> Array:
        """[J, n, n] ns that a stage with layers [a, b) recomputes for; NEVER where it has no room.

        Of replicas with so many micro-batches. A stage beside others on its device is taken alone:
        with them it recomputes no less.
        """
        moments = stage_moments(shape.schedule, shape.pp, stage, micro_batches, shape.vpp)
        return self.recomputation(shape).extra(moments)

    def backward_ns(self, shape: Shape, stage: int, micro_batches: int) -> Array:
        """[J, n, n] of a stage of a replica with so many, or with more no less."""
        backward = self.stage_times(shape)[1]
        if len(shape.recompute) == 1:
            return backward
        extra = self.extra(shape, stage, micro_batches)
        return backward + np.where(extra < NEVER, extra, 0)

    def plan(
        self, shape: Shape, order: Sequence[int], ends: Sequence[int], shares: Sequence[int]
    ) -> Plan:
        """The plan of a shape with these node groups in order, boundaries and micro-batches."""
        known = self.recomputation(shape)

        def chosen(device: int, group: int, share: int, chunks: Chunks) -> list[Recomputed]:
            moments = stage_moments(shape.schedule, shape.pp, device, share)
            return [known.chosen(group, moments, layers) for layers in chunks]

        choose = self.chunk_ways(shape).chosen if shape.vpp > 1 else chosen
        return uniform_plan(self.instance, shape, order, ends, shares, choose)

    def lacks_memory(self, shape: Shape) -> bool:
        """Whether no split fits, even if every stage had the roomiest GPU used to itself.

        Proof. In any plan of the shape each stage k lies on GPUs of some group used, and holds at
        least as many micro-batches in flight as a replica with m micro-batches does, m the least
        that a replica can have: that grows with m. What its device holds of other chunks comes on
        top. Of groups with equal degrees the one with most memory has room for all that others
        have. So a plan that fits is a chain of intervals that fit here. `ends` are the layers at
        which a chain of k intervals can end, for k = 0, 1, ...; without the last layer among them
        at the end there is none.
        """
        total = self.instance.workload.global_batch // shape.micro_batch
        even = self.instance.search.micro_batches == "even"
        least = total // shape.dp if even else 1
        capacities, largest = capacity_bytes(self.instance), dict[Degrees, int]()
        used = [j for j, n in enumerate(shape.nodes_used) if n]
        for j in sorted(used, key=lambda j: int(capacities[j])):
            largest[shape.degrees[j]] = j
        roomy = list(largest.values())
        ends = np.zeros(len(self.layers) + 1, dtype=bool)
        ends[0] = True
        for k in range(shape.num_stages):
            fits = self.enough_blocks & (self.extra(shape, k, least)[roomy] < NEVER).any(axis=0)
            ends = np.any(fits[ends], axis=0)
        return not ends[-1]
