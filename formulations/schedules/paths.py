"""Path families of operation graphs, and the check that a sequence of operations is a path.

Every path bounds the step time of every split: it is at least the sum of the times along it. The
families here are made from the graph alone, so they hold for every schedule; how strong they are
depends on the schedule. `path_counts` tests every arc, whoever made the path.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.schedules.graph import ScheduleGraph
from formulations.schedules.registry import Kind

Array = NDArray[np.int64]


@dataclass(frozen=True)
class PathCounts:
    """How often paths visit what: weights [2S or 3S, ..] and transfers [2S - 1, ..].

    Rows as `Level.weight` and `Level.transfer`; the last row of transfers is 0.
    """

    weights: Array
    transfers: Array


def path_counts(graph: ScheduleGraph, operations: Sequence[int] | Array) -> PathCounts:
    """What a path visits. Raises ValueError if two operations in a row are not an arc."""
    path = np.asarray(operations, dtype=np.int64)
    after, before = path[1:], path[:-1]
    by_device, by_data = graph.device_before[after] == before, graph.data_before[after] == before
    broken = np.flatnonzero(~(by_device | by_data))
    if broken.size:
        ends = (graph.operation(o) for o in path[broken[0] : broken[0] + 2])
        raise ValueError("no arc between {} and {}".format(*ends))
    kinds, stages = graph.index.shape[:2]
    transfers = np.bincount(graph.transfer[after[by_data]], minlength=2 * stages - 1)
    transfers[-1] = 0
    return PathCounts(np.bincount(graph.weight[path], minlength=kinds * stages), transfers)


def _down(graph: ScheduleGraph, stage: int, micro_batch: int, first: int = 0) -> Array:
    """Forwards of a micro-batch on virtual stages `first` to `stage`."""
    return graph.index[Kind.FORWARD, first : stage + 1, micro_batch]


def _up(graph: ScheduleGraph, stage: int, micro_batch: int, last: int = 0) -> Array:
    """Backwards of a micro-batch from virtual stage `stage` up to `last`."""
    return graph.index[Kind.BACKWARD, last : stage + 1, micro_batch][::-1]


def _ended(graph: ScheduleGraph, *parts: Array) -> Array:
    """The parts as one path, with what its last device still does after them."""
    path = np.concatenate(parts)
    each, last = graph.num_operations // graph.num_devices, int(path[-1])
    return np.concatenate([path, np.arange(last + 1, (last // each + 1) * each)])


def device_path(graph: ScheduleGraph, device: int, ends_at: int | None = None) -> Array:
    """Head, work, tail of a device: down to its first operation, all it does, up from there.

    ends_at: the device with whose last operation the path ends; `device` itself, or None for the
    first one: then the path leaves `device` after its last backward, and what follows on it (weight
    gradients put off) is missing. For any schedule in which a device begins with the first and ends
    its backwards with the last micro-batch of its first chunk.
    """
    m = graph.micro_batches
    first, final = graph.index[Kind.FORWARD, device, 0], graph.index[Kind.BACKWARD, device, m - 1]
    head, work = _down(graph, device - 1, 0), np.arange(first, final + 1)
    if ends_at == device:
        return _ended(graph, head, work)
    return _ended(graph, head, work, _up(graph, device - 1, m - 1))


def returned(graph: ScheduleGraph, stage: int) -> Array:
    """Micro-batch 0 through all virtual stages and back to `stage`, then what is left there, up.

    All that the device does from B(stage, 0) to the last backward of its first chunk.
    """
    m, device, bottom = graph.micro_batches, stage % graph.num_devices, graph.num_stages - 1
    final = int(graph.index[Kind.BACKWARD, device, m - 1])
    work = np.arange(int(graph.index[Kind.BACKWARD, stage, 0]), final + 1)
    through = _down(graph, bottom, 0), _up(graph, bottom, 0, stage + 1)
    return _ended(graph, *through, work, _up(graph, device - 1, m - 1))


def last_down(graph: ScheduleGraph, stage: int) -> Array:
    """To the device of `stage` and what it does up to F(stage, m - 1), then down and back up."""
    m, device, bottom = graph.micro_batches, stage % graph.num_devices, graph.num_stages - 1
    first = int(graph.index[Kind.FORWARD, device, 0])
    work = np.arange(first, int(graph.index[Kind.FORWARD, stage, m - 1]) + 1)
    through = _down(graph, bottom, m - 1, stage + 1), _up(graph, bottom, m - 1)
    return _ended(graph, _down(graph, device - 1, 0), work, *through)
