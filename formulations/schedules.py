"""Pipeline schedules as fixed operation orders, and the operation graph they induce.

1F1B (PipeDream, Narayanan et al. 2019): stage k of p first runs w = min(p-1-k, m) forwards, then
pairs F(w+i), B(i), then the remaining backwards. GPipe (Huang et al. 2019): all forwards, then
all backwards. Edges: along each device; F(k, i) after F(k-1, i) and a transfer; B(k, i) after
B(k+1, i) and a transfer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.instance.instance import ScheduleName

Index = NDArray[np.int64]


def warm_up(schedule: ScheduleName, num_stages: int, stage: int, micro_batches: int) -> int:
    """Number of forwards before the first backward is interleaved."""
    if schedule == "gpipe":
        return micro_batches
    return min(num_stages - 1 - stage, micro_batches)


def in_flight(schedule: ScheduleName, num_stages: int, stage: int, micro_batches: int) -> int:
    """Largest number of micro-batches whose activations a stage holds at once."""
    return min(warm_up(schedule, num_stages, stage, micro_batches) + 1, micro_batches)


def device_order(
    schedule: ScheduleName, num_stages: int, stage: int, micro_batches: int
) -> Iterator[tuple[bool, int]]:
    """Operations of one stage in order, as (is backward, micro-batch)."""
    warm = warm_up(schedule, num_stages, stage, micro_batches)
    for i in range(warm):
        yield False, i
    for i in range(micro_batches - warm):
        yield False, warm + i
        yield True, i
    for i in range(micro_batches - warm, micro_batches):
        yield True, i


@dataclass(frozen=True)
class Level:
    """Operations that depend on earlier levels only; every field has one entry an operation."""

    operation: Index
    device_before: Index  #: operation before it on the device; num_operations if none
    data_before: Index  #: operation on the neighbouring stage; num_operations if none
    transfer: Index  #: k: forward k to k+1; p-1+k: backward k+1 to k; 2p-2: none
    weight: Index  #: k: forward of stage k; p+k: backward of stage k


@dataclass(frozen=True)
class ScheduleGraph:
    """The graph of (schedule, p, m). Operation k * 2m + position runs on stage k."""

    num_stages: int
    micro_batches: int
    device_before: Index
    data_before: Index
    transfer: Index
    weight: Index
    micro_batch: Index
    levels: tuple[Level, ...]

    @property
    def num_operations(self) -> int:
        """2 m p."""
        return len(self.weight)

    @property
    def last_backward(self) -> Index:
        """Last operation of every stage, shape [p]."""
        return np.arange(1, self.num_stages + 1) * 2 * self.micro_batches - 1


def _operations(schedule: ScheduleName, p: int, m: int) -> tuple[Index, Index, Index, Index, Index]:
    index = np.empty((2, p, m), dtype=np.int64)
    weight, micro = np.empty(2 * p * m, dtype=np.int64), np.empty(2 * p * m, dtype=np.int64)
    for k in range(p):
        order = np.array(list(device_order(schedule, p, k, m)), dtype=np.int64)
        own = np.arange(k * 2 * m, (k + 1) * 2 * m)
        index[order[:, 0], k, order[:, 1]] = own
        weight[own], micro[own] = order[:, 0] * p + k, order[:, 1]
    none = 2 * p * m
    device = np.arange(none) - 1
    device[:: 2 * m] = none
    data, transfer = np.full(none, none), np.full(none, 2 * p - 2)
    data[index[0, 1:]] = index[0, :-1]
    data[index[1, :-1]] = index[1, 1:]
    data[index[1, -1]] = index[0, -1]
    transfer[index[0, 1:]] = np.arange(p - 1)[:, None]
    transfer[index[1, :-1]] = np.arange(p - 1, 2 * p - 2)[:, None]
    return device, data, transfer, weight, micro


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
def schedule_graph(schedule: ScheduleName, num_stages: int, micro_batches: int) -> ScheduleGraph:
    """Operation graph in topological levels, the same for all splits. O(m p)."""
    device, data, transfer, weight, micro = _operations(schedule, num_stages, micro_batches)
    depth = _depths(device, data)
    order = np.argsort(depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    levels = tuple(
        Level(ops, device[ops], data[ops], transfer[ops], weight[ops])
        for ops in np.split(order, cuts)
    )
    return ScheduleGraph(num_stages, micro_batches, device, data, transfer, weight, micro, levels)
