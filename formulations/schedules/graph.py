"""The operation graph of a schedule: what a step is the longest path through.

Edges: along each device, in its order; F(s, i) after F(s - 1, i) and a transfer; B(s, i) after
B(s + 1, i) and a transfer, on the last virtual stage after F(s, i); W(s, i) after B(s, i).
Virtual stage s lies on device s mod p.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules.registry import SCHEDULES, Kind, Operation, as_array, device_order

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Operations that depend on earlier levels only; every field has one entry an operation."""

    operation: Index
    device_before: Index  #: operation before it on the device; num_operations if none
    data_before: Index  #: operation whose result it waits for; num_operations if none
    transfer: Index  #: s: forward s to s+1; S-1+s: backward s+1 to s; 2S-2: none
    weight: Index  #: s: forward of virtual stage s; S+s: backward; 2S+s: weight gradients


@dataclass(frozen=True, eq=False)
class ScheduleGraph:
    """The graph of (schedule, p, m, v, group); operation d * num_per_device + i is device d's.

    index: [kinds, S, m] operation of each kind, virtual stage and micro-batch.
    """

    num_devices: int
    num_stages: int  #: S = p v virtual stages
    micro_batches: int
    index: Index
    device_before: Index
    data_before: Index
    transfer: Index
    weight: Index
    micro_batch: Index

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Operations in topological order, level by level; O(m S)."""
        depth = _depths(self.device_before, self.data_before)
        order = np.argsort(depth, kind="stable")
        cuts = np.flatnonzero(np.diff(depth[order])) + 1
        device, data = self.device_before, self.data_before
        return tuple(
            Level(ops, device[ops], data[ops], self.transfer[ops], self.weight[ops])
            for ops in np.split(order, cuts)
        )

    @property
    def num_operations(self) -> int:
        """2 m S, or 3 m S with weight gradients."""
        return len(self.weight)

    @property
    def last(self) -> Index:
        """Last operation of every device, shape [p]."""
        each = self.num_operations // self.num_devices
        return np.arange(1, self.num_devices + 1) * each - 1

    def operation(self, number: int) -> Operation:
        """Kind, virtual stage and micro-batch of an operation."""
        kind, stage = divmod(int(self.weight[number]), self.num_stages)
        return Operation(Kind(kind), stage, int(self.micro_batch[number]))


def _depths(device: Index, data: Index) -> Index:
    """Longest number of edges to each operation, by waves of ready operations."""
    none = len(device)
    before = [device.tolist(), data.tolist()]
    missing = [(d != none) + (e != none) for d, e in zip(*before, strict=True)]
    after: list[list[int]] = [[] for _ in range(none + 1)]
    for side in before:
        for operation, predecessor in enumerate(side):
            after[predecessor].append(operation)
    depth, wave, level = [0] * none, [o for o in range(none) if not missing[o]], 0
    while wave:
        following = []
        for operation in wave:
            depth[operation] = level
            for successor in after[operation]:
                missing[successor] -= 1
                if not missing[successor]:
                    following.append(successor)
        wave, level = following, level + 1
    return np.array(depth, dtype=np.int64)


@lru_cache(maxsize=512)
def schedule_graph(
    schedule: ScheduleName,
    num_devices: int,
    micro_batches: int,
    chunks: int = 1,
    group: int | None = None,
) -> ScheduleGraph:
    """Operation graph, the same for all splits. O(m S)."""
    # operations device by device, in order
    kinds, stages = 3 if SCHEDULES[schedule].splits_backward else 2, num_devices * chunks
    none = kinds * stages * micro_batches
    index = np.empty((kinds, stages, micro_batches), dtype=np.int64)
    weight, micro = np.empty(none, dtype=np.int64), np.empty(none, dtype=np.int64)
    each = none // num_devices
    for d in range(num_devices):
        order = as_array(device_order(schedule, num_devices, d, micro_batches, chunks, group))
        numbers = np.arange(d * each, (d + 1) * each)
        index[tuple(order.T)] = numbers
        weight[numbers], micro[numbers] = order[:, 0] * stages + order[:, 1], order[:, 2]
    device = np.arange(none) - 1
    device[::each] = none

    # what each waits for beside its device, and over which transfer
    data, transfer = np.full(none, none), np.full(none, 2 * stages - 2)
    forward, backward = index[0], index[1]
    data[forward[1:]] = forward[:-1]
    data[backward[:-1]] = backward[1:]
    data[backward[-1]] = forward[-1]
    transfer[forward[1:]] = np.arange(stages - 1)[:, None]
    transfer[backward[:-1]] = np.arange(stages - 1, 2 * stages - 2)[:, None]
    if len(index) > Kind.WEIGHT:
        data[index[Kind.WEIGHT]] = backward
    return ScheduleGraph(
        num_devices=num_devices,
        num_stages=stages,
        micro_batches=micro_batches,
        index=index,
        device_before=device,
        data_before=data,
        transfer=transfer,
        weight=weight,
        micro_batch=micro,
    )
