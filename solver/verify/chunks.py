"""What plans of a shape with several chunks per device below a claim may use, whatever their order.

Virtual stage s lies on device s mod p, so along the layers the nodes come v times over. Going
through devices instead, each with the sizes of all its chunks, every node comes once: a plan is a
path through the graph of all node orders whose states also count the layers placed so far. What is
given up is where the layers of a chunk begin: it is charged the least of all places where so many
layers may be, which is exact where they are alike. Sizes of all chunks are a split, so nothing but
its times is given up; links between zones, and what the last device's node adds to the transfer to
the first, only lengthen a step.

Every path of the operation graph bounds a step by a sum over devices: with (n_F, n_B) operations of
each kind on a virtual stage, n messages between it and the one before, and the tail of the device
that the path ends with,

    T >= sum over devices, sum over chunks (n_F f + n_B b + n send) + tail,

which `path_counts` makes of any sequence of operations after testing every arc. A way to run a
device is struck out where a shortest path through it, by any of these sums, is beyond the claim;
fewer ways make the others longer, until nothing changes. Nothing of a plan within the claim is ever
struck out. Times of a device, tied to its own chunks, are in one way: so these sums know that a
device cannot be busy longer, and that layers are whole, which a sum over virtual stages does not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from formulations.schedules import (
    PathCounts,
    ScheduleGraph,
    device_path,
    last_down,
    path_counts,
    returned,
    schedule_graph,
)
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.device_ways import DeviceWays, Left, Ways
from solver.verify.lengths import NEVER

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Lengths held at once.
MOST_LENGTHS = 1 << 22


@dataclass(frozen=True)
class Paths:
    """C paths: visits [C, 3 v, p] of what is in `Ways.times`; the devices [C] that end them."""

    visits: Array
    device: Array

    def __len__(self) -> int:
        return len(self.device)

    def some(self, part: slice) -> "Paths":
        """A run of them."""
        return Paths(self.visits[part], self.device[part])

    def lengths(self, k: int, ways: Ways, lane: int) -> Array:
        """[C, M] what ways to run device k add."""
        lengths: Array = self.visits[:, :, k] @ ways.times[:, lane]
        lengths[self.device == k] += ways.tail
        return lengths


class Chunks(DeviceWays):
    """The question for one shape."""

    def __init__(self, prover: Prover, shape: Shape, clock: Clock | None = None) -> None:
        super().__init__(prover, shape)
        self.clock = clock or Clock()

    @cached_property
    def families(self) -> Paths:
        """The paths that are the same for all shapes with these degrees, arc by arc."""
        shape = self.shape
        graph = schedule_graph(shape.schedule, shape.pp, self.share, shape.vpp)
        visits, devices = list[Array](), list[int]()
        for path in _candidates(graph):
            try:
                visits.append(self._visits(path_counts(graph, path)))
            except ValueError:
                continue  # not a path of this graph
            devices.append(int(path[-1]) // (graph.num_operations // shape.pp))
        return Paths(np.stack(visits), np.array(devices))

    def _visits(self, path: PathCounts) -> Array:
        """[3 v, p] of one path."""
        stages, (v, p) = self.shape.num_stages, (self.shape.vpp, self.shape.pp)
        visits = path.weights.reshape(2, stages)
        messages = np.zeros((1, stages), dtype=np.int64)
        messages[0, 1:] = path.transfers[:-1].reshape(2, stages - 1).sum(axis=0)
        if self.instance.search.blocking_sends:
            messages[0, 1:] = visits[0, :-1] + visits[1, 1:]
        return np.concatenate([visits, messages]).reshape(3 * v, p)

    def remaining(self, left: Left, below_ns: int) -> Left | None:
        """What plans with a step time below this may use of `left`; None if there are none."""
        before, paths = -1, self.families
        while before != (count := sum(map(len, left))):
            before, each = count, max(1, MOST_LENGTHS // max(1, count))
            for lane in range(len(self.lanes)):
                for first in range(0, len(paths), each):
                    self.clock.check()
                    if not all(map(len, left)):
                        return None
                    left = self._kept(left, paths.some(slice(first, first + each)), lane, below_ns)
        return left

    def _kept(self, left: Left, paths: Paths, lane: int, below_ns: int) -> Left:
        """What lies on a way below the claim by the sums of all these paths."""
        costs = [paths.lengths(k, ways, lane) for k, ways in enumerate(left)]
        after = self._after(left, costs)
        before = np.zeros((len(paths), self.size), dtype=np.int64)
        found = []
        for ways, cost, rest, step in zip(left, costs, after, self.graph.built, strict=True):
            there = before[:, ways.source] + cost
            keep: Mask = np.all(there + rest[:, ways.target] < below_ns, axis=0)
            before = _least(ways.target, there, step.num_targets * self.size)
            found.append(ways if keep.all() else ways.take(keep))
        return found

    def _after(self, left: Left, costs: Sequence[Array]) -> list[Array]:
        """Shortest ways [C, states] from every state after each device to the end."""
        states = self.graph.built[-1].num_targets * self.size
        found = [np.zeros((len(costs[0]), states), dtype=np.int64)]
        for k in range(len(left) - 1, 0, -1):
            onward = found[-1][:, left[k].target] + costs[k]
            found.append(
                _least(left[k].source, onward, self.graph.built[k - 1].num_targets * self.size)
            )
        return found[::-1]


def _candidates(graph: ScheduleGraph) -> Iterator[Array]:
    """Sequences of operations that are paths of many schedules."""
    for device in range(graph.num_devices):
        yield device_path(graph, device)
        yield device_path(graph, device, device)
    for stage in range(graph.num_stages):
        yield returned(graph, stage)
        yield last_down(graph, stage)


def _least(states: Array, lengths: Array, count: int) -> Array:
    """[C, count] least of lengths [C, M] by state [M]."""
    order = np.argsort(states, kind="stable")
    known = states[order]
    first = np.flatnonzero(np.concatenate([[True], known[1:] != known[:-1]]))
    best = np.full((len(lengths), count), NEVER)
    best[:, known[first]] = np.minimum.reduceat(lengths[:, order], first, axis=1)
    return best
