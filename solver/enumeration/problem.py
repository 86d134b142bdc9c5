"""One split problem: a fixed shape, node order and micro-batches per replica class.

Layers [a, b) on stage k cost what the matrices below say at [a, b]; n = L + 1. Replicas with
equal node groups, transfers and micro-batches form one class and behave alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.placement import PlacementCosts
from formulations.costs.tables import CostTables
from formulations.schedules import in_flight

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Larger than any time in ns, small enough that sums of a few do not overflow.
INFINITY = np.int64(1) << 60


def interval_sums(values: Array) -> Array:
    """[.., n, n] sum of `values` [.., L] over [a, b); negative where b < a."""
    before = np.concatenate([np.zeros_like(values[..., :1]), np.cumsum(values, axis=-1)], axis=-1)
    sums: Array = before[..., None, :] - before[..., :, None]
    return sums


def _interval_maxima(values: Array) -> Array:
    size = len(values) + 1
    maxima = np.zeros((size, size), dtype=np.int64)
    for start in range(len(values)):
        maxima[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return maxima


class Intervals:
    """Interval sums of one CostTables, shared by all its orders and micro-batch shares."""

    def __init__(self, tables: CostTables) -> None:
        self.tables = tables
        self.forward = interval_sums(tables.forward_ns.T)  # [J, n, n]
        self.backward = interval_sums(tables.backward_ns.T)
        self.optimizer = interval_sums(tables.optimizer_ns.T)
        self.static = interval_sums(tables.static_bytes) + tables.fixed_bytes
        self.activation = interval_sums(tables.activation_bytes)
        self.workspace = _interval_maxima(tables.workspace_bytes)
        blocks = tables.blocks_before[None, :] - tables.blocks_before[:, None]
        ends = np.arange(tables.num_layers + 1)
        self.allowed = (blocks >= tables.min_blocks) & (ends[None, :] > ends[:, None])
        self._fits: dict[tuple[int, int], Mask] = {}

    def fits(self, group: int, held: int) -> Mask:
        """[n, n] layers that may run on `group` with `held` micro-batches in flight."""
        key = (group, held)
        if key not in self._fits:
            need = self.static + held * self.activation + self.workspace
            self._fits[key] = self.allowed & (need <= self.tables.capacity_bytes[group])
        return self._fits[key]


@dataclass(frozen=True)
class ReplicaClass:
    """Replicas that behave alike: their indices, node group per stage, transfer per boundary."""

    replicas: tuple[int, ...]
    groups: tuple[int, ...]
    send_ns: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.replicas)


def replica_classes(placement: PlacementCosts, dp: int) -> list[ReplicaClass]:
    """Classes of one placement in order of their first replica."""
    groups = placement.group_of_slot.reshape(-1, dp)
    members: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for r in range(dp):
        key = (tuple(groups[:, r].tolist()), tuple(placement.send_ns[:, r].tolist()))
        members.setdefault(key, []).append(r)
    return [ReplicaClass(tuple(found), *key) for key, found in members.items()]


@dataclass(frozen=True)
class Lane:
    """One class in one problem: [p, n, n] forward and backward ns with blocking sends inside."""

    micro_batches: int
    forward: Array
    backward: Array
    send: Array  #: [p - 1] arrival delay either way, 0 with blocking sends

    @cached_property
    def total(self) -> Array:
        """[p, n, n] forward + backward."""
        return self.forward + self.backward

    def bottleneck(self, gpipe: bool) -> Array:
        """[p, n, n] what a stage adds to the latency of a micro-batch at least; see completion."""
        p, m = len(self.forward), self.micro_batches
        left = np.zeros(p, np.int64) if gpipe else np.minimum(np.arange(p)[::-1], m - 1)
        least = np.minimum(self.forward, self.backward)
        return (m - 1) * self.total - left[:, None, None] * least


@dataclass(frozen=True)
class SplitProblem:
    """Find the contiguous split of least simulated step time; ns, p stages, n = L + 1.

    sync, finish: [p, n, n] between the last backward of a stage and its optimizer, and from then
    to its end. embedding: of tied embeddings, between the sync of the first and last stage and
    their optimizers. allowed: [p, n, n] memory and blocks.
    """

    schedule: str
    lanes: tuple[Lane, ...]
    sync: Array
    finish: Array
    tied: bool
    embedding: int
    allowed: Mask

    @property
    def num_stages(self) -> int:
        """Number of stages p."""
        return len(self.sync)

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return int(self.sync.shape[1]) - 1

    @cached_property
    def tail(self) -> Array:
        """[p, n, n] from the end of a stage's last backward to the end of the step, at least."""
        tail = self.sync + self.finish
        if self.tied:
            tail[[0, -1]] += self.embedding
        return tail


def _finish(intervals: Intervals, placement: PlacementCosts, groups: Array) -> Array:
    slowest = np.stack([intervals.optimizer[sorted(set(row))].max(axis=0) for row in groups])
    if not intervals.tables.shape.zero:
        return slowest
    return slowest + interval_sums(placement.gather_ns) + placement.gather_latency_ns[:, None, None]


def split_problem(
    intervals: Intervals,
    placement: PlacementCosts,
    classes: Sequence[ReplicaClass],
    shares: Sequence[int],
) -> SplitProblem:
    """The problem in which every replica of class c has `shares[c]` micro-batches."""
    tables = intervals.tables
    shape = tables.shape
    blocking = tables.instance.search.blocking_sends
    lanes = []
    allowed = np.repeat(intervals.allowed[None], shape.pp, axis=0)
    for one, m in zip(classes, shares, strict=True):
        send = np.array(one.send_ns, dtype=np.int64)
        forward, backward = (
            intervals.forward[list(one.groups)],
            intervals.backward[list(one.groups)],
        )
        if blocking:
            forward[:-1] += send[:, None, None]
            backward[1:] += send[:, None, None]
        lanes.append(Lane(m, forward, backward, np.zeros_like(send) if blocking else send))
        for k, j in enumerate(one.groups):
            allowed[k] &= intervals.fits(j, in_flight(shape.schedule, shape.pp, k, m))
    groups = placement.group_of_slot.reshape(shape.pp, shape.dp)
    sync = interval_sums(placement.sync_ns) + placement.sync_latency_ns[:, None, None]
    return SplitProblem(
        schedule=shape.schedule,
        lanes=tuple(lanes),
        sync=sync,
        finish=_finish(intervals, placement, groups),
        tied=tables.embedding_bytes > 0,
        embedding=placement.embedding_ns,
        allowed=allowed,
    )
