"""The layered graph of devices with several chunks of layers each: a device is an edge.

Along the layers the devices come v times over, and their nodes with them. Device by device every
node comes once: an edge places a device with the sizes of all its chunks, a state is what is open
of the node order and how many layers the devices so far have. Sizes of all chunks are a split, so a
path is a plan. Where the layers of a chunk begin is not known: it is charged the least of all
places where so many may be, which is exact where they are alike.

So any path of the operation graph is a sum over edges, and no plan is faster than a shortest path.
What a device does with all its chunks is known of an edge, unlike in the graph of virtual stages.
"""

from collections.abc import Iterator

import numpy as np

from solver.layered.device_edges import DeviceEdges, device_edges
from solver.layered.least_chunks import LeastChunks
from solver.layered.problem import INFINITY, Array, Intervals, SplitProblem

#: With more edges the graph is not built.
MOST_EDGES = 400_000
#: Entries of the tables of cuts and edges held at once.
MOST_ENTRIES = 1 << 22


Left = list[DeviceEdges]


class DeviceGraph:
    """The graph of one shape. problem: its virtual stages; arcs of the chunks of a device agree."""

    def __init__(self, intervals: Intervals, problem: SplitProblem) -> None:
        self.problem = problem
        self.p, self.v = problem.num_devices, problem.chunks
        self.size = problem.num_layers + 1
        self._costs = LeastChunks(intervals, problem)
        self.share = self._costs.share

    def everything(self, cutoff: int) -> Left | None:
        """All edges of devices that are not busy until the cutoff and fit; None if too many."""
        found: Left = []
        for k in range(self.p):
            edges = device_edges(self._costs, k, cutoff, MOST_EDGES - sum(map(len, found)))
            if edges is None:
                return None
            found.append(edges)
        return found

    def thinned(self, left: Left, rows: Array, device: Array, cutoff: int) -> Left | None:
        """Edges of paths below the cutoff by all these paths [C, 5 S], until nothing changes.

        None if there are none. device: [C] with which a path ends.
        """
        before = -1
        while before != (count := sum(map(len, left))):
            before = count
            for lane in range(self.problem.num_lanes):
                for some in self._blocks(len(rows), count):
                    if not all(map(len, left)):
                        return None
                    left = self._kept(left, rows[some], device[some], lane, cutoff)
        return left

    def _blocks(self, number: int, edges: int) -> Iterator[slice]:
        """Runs of so many paths that their tables are small."""
        each = max(1, MOST_ENTRIES // max(1, edges))
        return (slice(i, i + each) for i in range(0, number, each))

    def _kept(self, left: Left, rows: Array, device: Array, lane: int, cutoff: int) -> Left:
        costs = [edges.values(rows, device, k, lane) for k, edges in enumerate(left)]
        after = self._to_go(left, costs)
        before = np.zeros((len(rows), self.size), dtype=np.int64)
        found = []
        for k, (edges, cost) in enumerate(zip(left, costs, strict=True)):
            so_far = before[:, edges.source] + cost
            keep = (so_far + after[k + 1][:, edges.target]).max(axis=0) < cutoff
            before = edges.by_target.least(so_far, self._nodes(k))
            found.append(edges if keep.all() else edges.take(keep))
        return found

    def _nodes(self, k: int) -> int:
        """Nodes after device k."""
        return self.problem.stages[k].num_states * self.size

    def _to_go(self, left: Left, costs: list[Array]) -> list[Array]:
        """Least sums [C, nodes] from a node to the end, p + 1 times."""
        found = [np.zeros((len(costs[0]), self._nodes(self.p - 1)), dtype=np.int64)]
        for k in range(self.p - 1, -1, -1):
            cost = costs[k] + found[-1][:, left[k].target]
            nodes = self._nodes(k - 1) if k else self.size
            found.append(left[k].by_source.least(cost, nodes))
        return found[::-1]

    def shortest(self, left: Left, costs: list[Array]) -> list[int]:
        """Edges [p] of least sum of `costs`, p times [M]."""
        after, node, path = self._to_go(left, [cost[None] for cost in costs]), 0, list[int]()
        for edges, cost, rest in zip(left, costs, after[1:], strict=True):
            whole = np.where(edges.source == node, cost + rest[0, edges.target], INFINITY)
            path.append(int(whole.argmin()))
            node = int(edges.target[path[-1]])
        return path

    def count(self, left: Left) -> float:
        """Number of plans."""
        number = np.zeros(self.size)
        number[0] = 1
        for k, edges in enumerate(left):
            reached = number[edges.source]
            number = np.zeros(self._nodes(k))
            np.add.at(number, edges.target, reached)
        return float(number.sum())

    def plans(self, left: Left) -> tuple[Array, Array]:
        """Arcs [N, p] and splits [N, S + 1] of all plans."""
        chosen, node = np.empty((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for edges in left:
            parent, edge = np.nonzero(edges.source == node[:, None])
            chosen = np.concatenate([chosen[:, parent], edge[None]])
            node = edges.target[edge]
        pairs = list(zip(left, chosen, strict=True))
        sizes = np.stack([edges.sizes[:, own] for edges, own in pairs], axis=1)
        ends = sizes.reshape(self.p * self.v, -1).cumsum(axis=0).T
        arcs = np.column_stack([edges.arc[own] for edges, own in pairs])
        return arcs, np.column_stack([np.zeros(len(ends), dtype=np.int64), ends])
