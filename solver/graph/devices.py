"""The layered graph of devices with several chunks of layers each: a device is an edge.

Along the layers the devices come v times over, and their nodes with them. Device by device every
node comes once: an edge places a device with the sizes of all its chunks, a state is what is open
of the node order and how many layers the devices so far have. Sizes of all chunks are a split, so a
path is a plan. Where the layers of a chunk begin is not known: it is charged the least of all
places where so many may be, which is exact where they are alike.

So any path of the operation graph is a sum over edges, and no plan is faster than a shortest path.
What a device does with all its chunks is known of an edge, unlike in the graph of virtual stages.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory
from formulations.schedules.registry import held
from solver.graph.edges import Level, so_far, taken, to_go
from solver.graph.problem import INFINITY, Array, Intervals, Mask, SplitProblem


class LeastChunks:
    """Chunks of one problem, by virtual stage and number of layers.

    n = L + 1, S virtual stages; W ways to recompute, J node groups, T rows of sync and finish.
    """

    def __init__(self, intervals: Intervals, problem: SplitProblem) -> None:
        self.intervals, self.problem = intervals, problem
        self.p, self.v = problem.num_devices, problem.chunks
        self.length, self.size = problem.num_layers, problem.num_layers + 1
        (self.share,) = set(problem.micro_batches)
        self._memories: dict[int, tuple[Array, list[tuple[Array, Array]]]] = {}

    @cached_property
    def _places(self) -> Mask:
        """[S, L, n] whether a virtual stage may have so many layers from this one on."""
        stages, length = self.p * self.v, self.length
        s, first, count = np.ogrid[:stages, :length, : self.size]
        last = first + count
        inside = (first >= s) & (last <= length - (stages - 1 - s))
        inside &= ((s > 0) | (first == 0)) & ((s < stages - 1) | (last == length))
        places: Mask = inside & self.intervals.allowed[first[0], np.minimum(last[0], length)]
        return places

    def _least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers; INFINITY if there is none."""
        first = np.arange(self.length)[:, None]
        placed = values[first, np.minimum(first + np.arange(self.size), self.length)]
        minima: Array = np.where(self._places, placed, INFINITY).min(axis=1)
        return minima

    @cached_property
    def times(self) -> Array:
        """[2, W, J, S, n] forward and backward, by what is recomputed."""
        problem, ways = self.problem, self.intervals.tables.recompute_ns
        forward = np.stack([self._least(column_ns) for column_ns in problem.forward])
        backward = []
        for extra in (interval_sums(way.T) for way in ways):
            pairs = zip(problem.backward, extra, strict=True)
            backward.append([self._least(column_ns + more) for column_ns, more in pairs])
        return np.stack([np.repeat(forward[None], len(ways), axis=0), backward])

    @cached_property
    def tails(self) -> Array:
        """[T, S, n] sync and finish."""
        pairs = zip(self.problem.sync, self.problem.finish, strict=True)
        return np.stack([self._least(sync + finish) for sync, finish in pairs])

    def _memory(self, memory: LayerMemory) -> tuple[Array, list[tuple[Array, Array]]]:
        """[S, n] bytes: what stays; per way, of a micro-batch held, and while one recomputes."""
        if id(memory) not in self._memories:
            kept = []
            for _, activation, workspace in memory.kept:
                sums, largest = interval_sums(activation), interval_maxima(workspace)
                kept.append((self._least(sums), self._least(largest)))
            self._memories[id(memory)] = self._least(interval_sums(memory.static_bytes)), kept
        return self._memories[id(memory)]

    def ways(self, k: int, sizes: Array) -> Array:
        """[J, N] the first way that may have room on device k with chunks of sizes [v, N].

        W where none has. No plan with such chunks takes one before it.
        """
        tables, first_ways = self.intervals.tables, list[Array]()
        stages = np.arange(k, self.p * self.v, self.p)[:, None]
        fullest = held(self.problem.schedule, self.p, k, self.share, self.v, self.problem.group)
        in_flight = np.array(fullest)[:, :-1]
        for memory, capacity in zip(tables.memory, tables.capacity_bytes.tolist(), strict=True):
            # [W, N] whether there is room for what the device needs at least.
            static, kept = self._memory(memory)
            stays = static[stages, sizes].sum(axis=0) + memory.fixed_bytes
            peaks = []
            for activation, workspace in kept:
                in_passes = (in_flight @ activation[stages, sizes]).max(axis=0)
                peaks.append(in_passes + workspace[stages, sizes].max(axis=0))
            room = stays + np.stack(peaks) <= capacity
            first_ways.append(np.where(room.any(axis=0), room.argmax(axis=0), len(room)))
        return np.stack(first_ways)

    def within(self, k: int, cutoff: int) -> Array:
        """[v, N] sizes of chunks with which device k is not busy until the cutoff on every group.

        The other devices have a layer for each of their chunks.
        """
        columns = np.unique(self.problem.stages[k].column)
        work = self.times[:, 0].sum(axis=0)[columns].min(axis=0)
        most_layers = self.length - (self.p - 1) * self.v
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in range(k, self.p * self.v, self.p):
            possible = np.flatnonzero(work[s] < INFINITY)
            more = busy[:, None] + self.share * work[s, possible]
            fits = (more < cutoff) & (sizes.sum(axis=0)[:, None] + possible <= most_layers)
            chosen, count = np.nonzero(fits)
            sizes = np.concatenate([sizes[:, chosen], possible[None, count]])
            busy = more[chosen, count]
        return sizes


@dataclass(frozen=True)
class DeviceEdges(Level):
    """M ways to run one device; v chunks, R lanes, ns. A node is state * n + layers so far.

    arc: [M]. before: [M] layers of the devices before. sizes: [v, M]. passes: [2 v, R, M] forward
    of the chunks, then backward. send: [v, R, M] to every chunk from the virtual stage before, and
    back. tail: [M].
    """

    arc: Array
    before: Array
    sizes: Array
    passes: Array
    send: Array
    tail: Array

    def values(self, rows: Array, device: Array, k: int, lane: int) -> Array:
        """[C, M] what the edges of device k add to paths; see `Cuts` of S virtual stages."""
        chunks, stages = len(self.sizes), rows.shape[1] // 5
        p = stages // chunks
        forward, backward, send, back, _ = (
            rows[:, i * stages + k : (i + 1) * stages : p] for i in range(5)
        )
        visits = np.concatenate([forward, backward, send + back], axis=1)
        values: Array = visits @ np.concatenate([self.passes[:, lane], self.send[:, lane]])
        values[device == k] += self.tail
        return values


def device_edges(costs: LeastChunks, k: int, cutoff: int, max_edges: int) -> DeviceEdges | None:
    """Edges of device k that is not busy until the cutoff and fits; None if above `max_edges`."""
    arcs, p, v = costs.problem.stages[k], costs.p, costs.v
    sizes = costs.within(k, cutoff)
    count, ways = sizes.sum(axis=0), costs.ways(k, sizes)
    num_ways = len(costs.times[0])
    before = np.arange(k * v, costs.length - (p - k) * v + 1) if k else np.zeros(1, np.int64)
    rest = costs.length - before[:, None] - count
    joined = (rest == 0) if k == p - 1 else (rest >= (p - 1 - k) * v)
    stages = np.arange(k, p * v, p)
    rows, total = [], 0
    for x, column in enumerate(arcs.column):
        way = np.minimum(ways[column], num_ways - 1)[:, None]
        times = costs.times[:, way, column[:, None, None], stages[:, None], sizes]
        busy = costs.share * times.sum(axis=(0, 2))
        room = (ways[column] < num_ways).all(axis=0)
        first, chosen = np.nonzero(joined & room & (busy < cutoff).all(axis=0))
        total += len(chosen)
        if total > max_edges:
            return None
        rows.append((np.full(len(chosen), x), before[first], chosen))
    arc, first, chosen = (np.concatenate(column) for column in zip(*rows, strict=True))
    # What the edges cost.
    sizes, column = sizes[:, chosen], arcs.column[arc].T
    way = ways[:, chosen][column, np.arange(len(arc))][None]
    passes = costs.times[:, way, column[None], stages[:, None, None], sizes[:, None]]
    chunks = [costs.problem.stages[s] for s in stages]
    tail = np.zeros(len(arc), dtype=np.int64)
    for chunk, s, n in zip(chunks, stages, sizes, strict=True):
        tail += costs.tails[chunk.tail[arc], s, n] + chunk.embedding[arc] * costs.problem.tied
    source = arcs.source[arc] * costs.size + first
    edges = DeviceEdges(
        source=source,
        target=arcs.target[arc] * costs.size + first + sizes.sum(axis=0),
        num_sources=costs.size * costs.problem.states_before(k),
        num_targets=costs.size * costs.problem.stages[k].num_states,
        arc=arc,
        before=first,
        sizes=sizes,
        passes=passes.reshape(2 * costs.v, *column.shape),
        send=np.stack([chunk.send[arc].T for chunk in chunks]),
        tail=tail,
    )
    return edges.take(np.argsort(source, kind="stable"))


#: With more edges the graph is not built.
MOST_EDGES = 400_000
#: Entries of the tables of cuts and edges held at once.
MOST_ENTRIES = 1 << 22


DeviceLayers = list[DeviceEdges]


class DeviceGraph:
    """The graph of a config. problem: its virtual stages; arcs of the chunks of a device agree."""

    def __init__(self, intervals: Intervals, problem: SplitProblem) -> None:
        self.problem = problem
        self.p, self.v = problem.num_devices, problem.chunks
        self._costs = LeastChunks(intervals, problem)
        self.share = self._costs.share

    def everything(self, cutoff: int) -> DeviceLayers | None:
        """All edges of devices that are not busy until the cutoff and fit; None if too many."""
        layers: DeviceLayers = []
        for k in range(self.p):
            edges = device_edges(self._costs, k, cutoff, MOST_EDGES - sum(map(len, layers)))
            if edges is None:
                return None
            layers.append(edges)
        return layers

    def thinned(
        self, layers: DeviceLayers, rows: Array, device: Array, cutoff: int
    ) -> DeviceLayers | None:
        """Edges of paths below the cutoff by all these paths [C, 5 S], until nothing changes.

        None if there are none. device: [C] with which a path ends.
        """
        before = -1
        while before != (count := sum(map(len, layers))):
            before = count
            # Runs of so many paths that their tables are small.
            each = max(1, MOST_ENTRIES // max(1, count))
            for lane, i in product(range(self.problem.num_lanes), range(0, len(rows), each)):
                if not all(map(len, layers)):
                    return None
                block = slice(i, i + each)
                costs = [
                    e.values(rows[block], device[block], k, lane) for k, e in enumerate(layers)
                ]
                so_far_ns, to_go_ns = so_far(layers, costs), to_go(layers, costs)
                through = [
                    so_far_ns[k][:, edges.source] + cost + to_go_ns[k + 1][:, edges.target]
                    for k, (edges, cost) in enumerate(zip(layers, costs, strict=True))
                ]
                layers = taken(layers, [length.max(axis=0) < cutoff for length in through])
        return layers

    def count(self, layers: DeviceLayers) -> float:
        """Number of plans."""
        number = np.ones(1)
        for edges in layers:
            reached = number[edges.source]
            number = np.zeros(edges.num_targets)
            np.add.at(number, edges.target, reached)
        return float(number.sum())

    def plans(self, layers: DeviceLayers) -> tuple[Array, Array]:
        """Arcs [N, p] and splits [N, S + 1] of all plans."""
        chosen, node = np.empty((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for edges in layers:
            parent, edge = np.nonzero(edges.source == node[:, None])
            chosen = np.concatenate([chosen[:, parent], edge[None]])
            node = edges.target[edge]
        pairs = list(zip(layers, chosen, strict=True))
        sizes = np.stack([edges.sizes[:, chosen_edges] for edges, chosen_edges in pairs], axis=1)
        ends = sizes.reshape(self.p * self.v, -1).cumsum(axis=0).T
        arcs = np.column_stack([edges.arc[chosen_edges] for edges, chosen_edges in pairs])
        return arcs, np.column_stack([np.zeros(len(ends), dtype=np.int64), ends])
