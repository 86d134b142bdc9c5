"""Ways to run a device with all its chunks of layers, and what they cost: see `devices`."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory
from formulations.schedules import held
from solver.layered.problem import (
    INFINITY,
    Array,
    Intervals,
    Mask,
    SplitProblem,
)


@dataclass(frozen=True)
class _Runs:
    """Edges in the order of the nodes at one end: `order` [M], where a node begins, the nodes."""

    order: Array
    first: Array
    nodes: Array

    @classmethod
    def of(cls, ends: Array) -> "_Runs":
        """Of edges with these ends [M]."""
        order = np.argsort(ends, kind="stable")
        known = ends[order]
        begins = np.ones(len(known), dtype=bool)
        np.not_equal(known[1:], known[:-1], out=begins[1:])
        first = np.flatnonzero(begins)
        return cls(order, first, known[first])

    def least(self, cost: Array, size: int) -> Array:
        """[C, size] least of `cost` [C, M] by node."""
        best = np.full((len(cost), size), INFINITY)
        best[:, self.nodes] = np.minimum.reduceat(cost[:, self.order], self.first, axis=1)
        return best


@dataclass(frozen=True)
class DeviceEdges:
    """M ways to run one device; v chunks, R lanes, ns.

    arc: [M]. before: [M] layers of the devices before. sizes: [v, M]. source, target: [M] nodes,
    state * n + layers. passes: [2 v, R, M] forward of the chunks, then backward. send: [v, R, M]
    to every chunk from the virtual stage before, and back. tail: [M].
    """

    arc: Array
    before: Array
    sizes: Array
    source: Array
    target: Array
    passes: Array
    send: Array
    tail: Array

    def __len__(self) -> int:
        return len(self.arc)

    def take(self, keep: Mask | Array) -> "DeviceEdges":
        """Some of them."""
        return DeviceEdges(*(getattr(self, field.name)[..., keep] for field in fields(self)))

    @cached_property
    def by_source(self) -> _Runs:
        """By the node before."""
        return _Runs.of(self.source)

    @cached_property
    def by_target(self) -> _Runs:
        """By the node after."""
        return _Runs.of(self.target)

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


class DeviceCosts:
    """What devices of a problem may hold, and what that costs."""

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
        own = values[first, np.minimum(first + np.arange(self.size), self.length)]
        least: Array = np.where(self._places, own, INFINITY).min(axis=1)
        return least

    @cached_property
    def _times(self) -> Array:
        """[2, W, J, S, n] forward and backward, by what is recomputed."""
        problem, ways = self.problem, self.intervals.tables.recompute_ns
        forward = np.stack([self._least(own) for own in problem.forward])
        backward = [
            [self._least(own + more) for own, more in zip(problem.backward, extra, strict=True)]
            for extra in (interval_sums(way.T) for way in ways)
        ]
        return np.stack([np.repeat(forward[None], len(ways), axis=0), backward])

    @cached_property
    def _tails(self) -> Array:
        """[T, S, n] sync and finish."""
        pairs = zip(self.problem.sync, self.problem.finish, strict=True)
        return np.stack([self._least(sync + finish) for sync, finish in pairs])

    def _memory(self, own: LayerMemory) -> tuple[Array, list[tuple[Array, Array]]]:
        """[S, n] bytes: what stays; per way, of a micro-batch held, and while one recomputes."""
        if id(own) not in self._memories:
            kept = [
                (
                    self._least(interval_sums(way.activation_bytes)),
                    self._least(interval_maxima(way.workspace_bytes)),
                )
                for way in own.kept
            ]
            self._memories[id(own)] = self._least(interval_sums(own.static_bytes)), kept
        return self._memories[id(own)]

    def _ways(self, k: int, sizes: Array) -> Array:
        """[J, N] the first way that may have room on device k with chunks of sizes [v, N].

        W where none has. No plan with such chunks takes one before it.
        """
        tables, needs = self.intervals.tables, dict[int, Array]()
        for own in tables.memory:
            if id(own) not in needs:
                needs[id(own)] = self._bytes(k, sizes, own)
        found = []
        for own, most in zip(tables.memory, tables.capacity_bytes.tolist(), strict=True):
            room = needs[id(own)] <= most
            found.append(np.where(room.any(axis=0), room.argmax(axis=0), len(room)))
        return np.stack(found)

    def _bytes(self, k: int, sizes: Array, own: LayerMemory) -> Array:
        """[W, N] that device k needs at least with chunks of these sizes [v, N]."""
        stages = np.arange(k, self.p * self.v, self.p)[:, None]
        static, kept = self._memory(own)
        whole = held(self.problem.schedule, self.p, k, self.share, self.v).whole
        stays = static[stages, sizes].sum(axis=0) + own.fixed_bytes
        return np.stack(
            [
                stays
                + (whole @ activation[stages, sizes]).max(axis=0)
                + workspace[stages, sizes].max(axis=0)
                for activation, workspace in kept
            ]
        )

    def _sizes(self, k: int, cutoff: int) -> Array:
        """[v, N] sizes of chunks with which device k is not busy until the cutoff on every group.

        The other devices have a layer for each of their chunks.
        """
        columns = np.unique(self.problem.stages[k].column)
        work = self._times[:, 0].sum(axis=0)[columns].min(axis=0)
        most = self.length - (self.p - 1) * self.v
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in range(k, self.p * self.v, self.p):
            possible = np.flatnonzero(work[s] < INFINITY)
            more = busy[:, None] + self.share * work[s, possible]
            fits = (more < cutoff) & (sizes.sum(axis=0)[:, None] + possible <= most)
            own, count = np.nonzero(fits)
            sizes = np.concatenate([sizes[:, own], possible[None, count]])
            busy = more[own, count]
        return sizes

    def edges(self, k: int, cutoff: int, most: int) -> DeviceEdges | None:
        """Edges of device k that is not busy until the cutoff and fits; None if above `most`."""
        arcs, p, v = self.problem.stages[k], self.p, self.v
        sizes = self._sizes(k, cutoff)
        count, ways = sizes.sum(axis=0), self._ways(k, sizes)
        num_ways = len(self._times[0])
        before = np.arange(k * v, self.length - (p - k) * v + 1) if k else np.zeros(1, np.int64)
        rest = self.length - before[:, None] - count
        joined = (rest == 0) if k == p - 1 else (rest >= (p - 1 - k) * v)
        stages = np.arange(k, p * v, p)
        rows, total = [], 0
        for x, column in enumerate(arcs.column):
            way = np.minimum(ways[column], num_ways - 1)[:, None]
            times = self._times[:, way, column[:, None, None], stages[:, None], sizes]
            busy = self.share * times.sum(axis=(0, 2))
            room = (ways[column] < num_ways).all(axis=0)
            first, own = np.nonzero(joined & room & (busy < cutoff).all(axis=0))
            total += len(own)
            if total > most:
                return None
            rows.append((np.full(len(own), x), before[first], own))
        arc, first, own = (np.concatenate(column) for column in zip(*rows, strict=True))
        return self._priced(k, arc, first, sizes[:, own], ways[:, own])

    def _priced(self, k: int, arc: Array, before: Array, sizes: Array, ways: Array) -> DeviceEdges:
        stages = np.arange(k, self.p * self.v, self.p)
        arcs = [self.problem.stages[s] for s in stages]
        column = arcs[0].column[arc].T
        way = ways[column, np.arange(len(arc))][None]
        passes = self._times[:, way, column[None], stages[:, None, None], sizes[:, None]]
        tail = sum(
            (
                self._tails[own.tail[arc], s, n] + own.embedding[arc] * self.problem.tied
                for own, s, n in zip(arcs, stages, sizes, strict=True)
            ),
            np.zeros(len(arc), dtype=np.int64),
        )
        return DeviceEdges(
            arc=arc,
            before=before,
            sizes=sizes,
            source=arcs[0].source[arc] * self.size + before,
            target=arcs[0].target[arc] * self.size + before + sizes.sum(axis=0),
            passes=passes.reshape(2 * self.v, *column.shape),
            send=np.stack([own.send[arc].T for own in arcs]),
            tail=tail,
        )
