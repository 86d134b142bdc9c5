"""Chains of stages of least cost, for some ranges of the slowest stage time; see `bottleneck`.

A chain is a run of layers on consecutive GPUs: before the slowest stage, after it, or with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from formulations.plan import Stage
from formulations.template import Template, stage_on
from solver.layered.gpu_graph import Counts
from solver.layered.node_sharing import ways
from solver.layered.places import Places
from solver.layered.problem import INFINITY, Array

BEFORE, AFTER, WITH = 0, 1, 2  #: chains before the slowest stage, after it, and with it
#: Roles of the two parts of a chain, by its own.
_PARTS = {
    BEFORE: ((BEFORE, BEFORE),),
    AFTER: ((AFTER, AFTER),),
    WITH: ((WITH, AFTER), (BEFORE, WITH)),
}

Stages = list[tuple[int, int, int]]  #: first layer, end, place


@dataclass(frozen=True)
class Weights:
    """Multiples of a stage's own time and of the slowest: before, with and after the slowest."""

    before: tuple[int, int]
    slowest: tuple[int, int]
    after: tuple[int, int]

    def value(self, times: Sequence[int]) -> int:
        """Objective of stage times in pipeline order."""
        most = max(times)
        k = max(i for i, time in enumerate(times) if time == most)
        parts = [self.before] * k + [self.slowest] + [self.after] * (len(times) - k - 1)
        return sum(
            own * time + bound * most for (own, bound), time in zip(parts, times, strict=True)
        )


def times_by_length(places: Places) -> Array:
    """[C, length, first layer] stage times; INFINITY where layers may not stand."""
    fits = np.stack([places.fits(x, 1) for x in range(len(places.gpus))])
    busy = np.where(fits, places.forward + places.backward, INFINITY)
    found = np.full(busy.shape, INFINITY)
    for length in range(1, busy.shape[-1]):
        first = np.arange(busy.shape[-1] - length)
        found[:, length, first] = busy[:, first, first + length]
    return found


@dataclass
class ChainTables:
    """Chains of some ranges; arrays are [3, ranges, length, first layer], by role."""

    places: Places
    busy: Array  #: as `times_by_length`
    weights: Weights
    low: Array
    high: Array
    singles: dict[int, Array] = field(default_factory=dict)
    chains: dict[tuple[int, int], Array] = field(default_factory=dict)

    def single(self, place: int) -> Array:
        """One stage at a place."""
        if place not in self.singles:
            weights, time = self.weights, self.busy[place][None]
            low, high = self.low[:, None, None], self.high[:, None, None]
            fits = time <= high
            shorter = np.where(low == high, time < high, fits)
            roles = (
                (weights.before, fits),
                (weights.after, shorter),
                (weights.slowest, fits & (time >= low)),
            )
            self.singles[place] = np.stack(
                [np.where(ok, own * time + bound * low, INFINITY) for (own, bound), ok in roles]
            )
        return self.singles[place]

    def on(self, group: int, gpus: int) -> Array:
        """Chains that fill so many GPUs of a node of the group."""
        key = (group, gpus)
        if key not in self.chains:
            places = self.places.of_group(group)
            if gpus in places:
                found = self.single(places[gpus]).copy()
            else:
                found = np.full((3, len(self.low), *self.busy.shape[1:]), INFINITY)
            for parts in self.parts(group, gpus):
                _join(*parts, found)
            self.chains[key] = found
        return self.chains[key]

    def ways(self, group: int, gpus: int) -> tuple[tuple[bool, int, int], ...]:
        """Ways to cut these GPUs of a node of the group."""
        return ways(self.places.split, gpus, tuple(self.places.of_group(group)))

    def parts(self, group: int, gpus: int) -> list[tuple[Array, Array]]:
        """Both parts of every way to cut these GPUs."""
        return [
            (self._first(group, first, alone), self.on(group, second))
            for alone, first, second in self.ways(group, gpus)
        ]

    def _first(self, group: int, gpus: int, alone: bool) -> Array:
        if alone:
            return self.single(self.places.of_group(group)[gpus])
        return self.on(group, gpus)


def _lengths(chains: Array) -> tuple[int, int]:
    """Least and largest number of layers that any chain has; (1, 0) if there are none."""
    some = np.flatnonzero((chains < INFINITY).any(axis=(0, 1, 3)))
    return (int(some[0]), int(some[-1])) if len(some) else (1, 0)


def _join(first: Array, second: Array, found: Array) -> None:
    """Lowers `found` to the least sum of two chains behind each other."""
    size = first.shape[-1]
    (low, high), (least, most) = _lengths(first), _lengths(second)
    for length in range(low, high + 1):
        longest = min(most, size - 1 - length)
        if longest < least:
            break
        head = first[:, :, length, None, : size - length]
        tail = second[:, :, least : longest + 1, length:]
        whole = found[:, :, length + least : length + longest + 1, : size - length]
        for role, parts in _PARTS.items():
            for left, right in parts:
                np.minimum(whole[role], head[left] + tail[right], out=whole[role])


class NodeTables:
    """Chains of whole nodes, from the first layer on; cost: [3, vectors, ranges, layers]."""

    def __init__(self, chains: ChainTables, vectors: Sequence[Counts]) -> None:
        """`vectors`: no nodes at first, and every vector after those with a node less."""
        self.chains, self.places = chains, chains.places
        self.row = {v: i for i, v in enumerate(vectors)}
        size = chains.busy.shape[-1]
        self.cost = np.full((3, len(vectors), len(chains.low), size), INFINITY)
        self.cost[BEFORE, 0, :, 0] = 0
        used = [j for j in range(len(self.places.nodes)) if any(v[j] for v in vectors)]
        self.node = {j: chains.on(j, self.places.node_gpus[j]) for j in used}
        self.lengths = {j: _lengths(own) for j, own in self.node.items()}
        for vector in vectors[1:]:
            for j, before in self._steps(vector):
                self._add(self.row[vector], before, j)

    def _steps(self, vector: Counts) -> list[tuple[int, int]]:
        """Group of the last node, and row of the vector without it."""
        fewer = [(j, (*vector[:j], n - 1, *vector[j + 1 :])) for j, n in enumerate(vector) if n]
        return [(j, self.row[one]) for j, one in fewer]

    def _add(self, row: int, before: int, j: int) -> None:
        size, (low, high) = self.cost.shape[-1], self.lengths[j]
        for length in range(low, high + 1):
            node = self.node[j][:, :, length, : size - length]
            for role, (left, right) in ((r, parts) for r in (BEFORE, WITH) for parts in _PARTS[r]):
                old = self.cost[left, before, :, : size - length]
                new = self.cost[role, row, :, length:]
                np.minimum(new, old + node[right], out=new)

    def bounds(self, finals: Sequence[Counts], b: int) -> tuple[int, Counts]:
        """Least cost of all layers on any of the node counts, and which."""
        return min((int(self.cost[WITH, self.row[v], b, -1]), v) for v in finals)

    def template(self, vector: Counts, b: int) -> tuple[Template, list[int]]:
        """The template of least cost and its stage times."""
        nodes: list[tuple[int, Stages]] = []
        role, end = WITH, self.cost.shape[-1] - 1
        while any(vector):
            j, start, before, part = self._last_node(vector, role, end, b)
            gpus = self.places.node_gpus[j]
            nodes.insert(0, (j, self._stages(j, gpus, part, start, end, b)))
            vector = (*vector[:j], vector[j] - 1, *vector[j + 1 :])
            role, end = before, start
        return self._built(nodes)

    def _last_node(self, vector: Counts, role: int, end: int, b: int) -> tuple[int, int, int, int]:
        """Group, first layer, role before it and own role of the last node."""
        wanted = self.cost[role, self.row[vector], b, end]
        starts = np.arange(end)
        for (j, before), (left, right) in product(self._steps(vector), _PARTS[role]):
            own = self.node[j][right, b, end - starts, starts]
            hits = np.flatnonzero(self.cost[left, before, b, :end] + own == wanted)
            if len(hits):
                return j, int(hits[0]), left, right
        raise AssertionError("no last node attains the bound")

    def _stages(self, j: int, gpus: int, role: int, start: int, end: int, b: int) -> Stages:
        """Stages of least cost on these GPUs."""
        chains, places = self.chains, self.places.of_group(j)
        wanted = chains.on(j, gpus)[role, b, end - start, start]
        if gpus in places and chains.single(places[gpus])[role, b, end - start, start] == wanted:
            return [(start, end, places[gpus])]
        middles = np.arange(start + 1, end)
        cuts = zip(chains.ways(j, gpus), chains.parts(j, gpus), strict=True)
        for ((alone, first, second), (head, tail)), (left, right) in product(cuts, _PARTS[role]):
            own = head[left, b, middles - start, start]
            hits = middles[own + tail[right, b, end - middles, middles] == wanted]
            if len(hits):
                m = int(hits[0])
                rest = self._stages(j, second, right, m, end, b)
                if alone:
                    return [(start, m, places[first]), *rest]
                return [*self._stages(j, first, left, start, m, b), *rest]
        raise AssertionError("no arrangement attains the cost")

    def _built(self, nodes: Sequence[tuple[int, Stages]]) -> tuple[Template, list[int]]:
        stages, times = list[Stage](), list[int]()
        for i, (_, own) in enumerate(nodes):
            offset = 0
            for start, end, place in own:
                gpus = self.places.gpus[place]
                recomputed = self.places.memory.recomputed(place, 1, (start, end))
                stages.append(stage_on((start, end), i, offset, gpus, recomputed))
                times.append(int(self.chains.busy[place, end - start, start]))
                offset += gpus
        groups = tuple(j for j, _ in nodes)
        return Template(node_groups=groups, stages=tuple(stages)), times
