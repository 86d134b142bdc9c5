"""The tables of `oobleck_search`: least costs of the last stages, which know how many they are.

A 1F1B stage holds as many micro-batches as stages follow it, plus one. So templates are built from
the last stage on, nodes one in front of the other, and what fits is decided exactly: tables tell
apart how many stages there are so far, up to the number from which on it makes no difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from formulations.fleet import Template, stage_on
from formulations.node_sharing import may_start
from formulations.plan import Stage
from solver.graph.pipelines import Counts
from solver.graph.places import Places
from solver.graph.problem import INFINITY, Array, Mask

EVERY = slice(None)  #: range
AFTER, WITH, BEFORE = 0, 1, 2  #: a stage after the slowest one, that one, a stage before it
#: Role of what a stage makes with what follows it: its own, and that of what follows.
_MADE = {AFTER: ((AFTER, AFTER),), WITH: ((WITH, AFTER), (BEFORE, WITH))}


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


class StageRoom:
    """Where stages of a pipeline with so many micro-batches have room for which layers.

    rows: R, numbers of stages that follow which make a difference: 0, 1, .., R - 1 or more.
    """

    def __init__(self, places: Places, num_gpus: int, micro_batches: int) -> None:
        self.places, most = places, max(1, min(places.num_layers, num_gpus))
        held = [places.held(most, most - 1 - r, micro_batches) for r in range(most)]
        self.held = held[: held.index(held[-1]) + 1]
        self.rows = len(self.held)
        first, length = np.indices(places.forward.shape[1:])
        self._run = first, np.minimum(first + length, places.num_layers)
        self._inside = first + length <= places.num_layers
        self.fits = [self._fits(x) for x in range(len(places.gpus))]
        self.busy = [self._busy(x) for x in range(len(places.gpus))]
        self.times = np.unique(np.concatenate([own[own < INFINITY] for own in self.busy]))

    def _fits(self, place: int) -> Mask:
        """[R, first layer, number of layers]."""
        found = [self.places.fits(place, one)[self._run] & self._inside for one in self.held]
        return np.stack(found)

    def _busy(self, place: int) -> Array:
        """[first layer, number of layers] time of a stage, INFINITY where it never fits."""
        busy = self.places.forward[place] + self.places.backward[place]
        return np.where(self.fits[place].any(axis=0), busy[self._run], INFINITY)


class _Position(NamedTuple):
    """A stage in front of others: its place, and GPUs of its node that stages behind it fill."""

    place: int
    filled: int


class CountedTables:
    """Least costs of the last stages for some ranges, [2, ranges, R, n], by nodes that they fill.

    They begin at layer 0 .. n - 1 and are all after the slowest one, or it is among them.
    """

    def __init__(
        self, room: StageRoom, weights: Weights, vectors: Sequence[Counts], low: Array, high: Array
    ) -> None:
        """`vectors`: no nodes at first, and every vector after those with a node less."""
        self.room, self.places, self.weights = room, room.places, weights
        self.low, self.high = low, high
        self.singles = [self._single(x) for x in range(len(self.places.gpus))]
        none = np.full((2, len(low), room.rows, self.places.num_layers + 1), INFINITY)
        self._known = dict[tuple[int, Counts, int], list[Array]]()
        self.table = {vectors[0]: none.copy()}
        self.table[vectors[0]][AFTER, :, 0, -1] = 0
        for vector in vectors[1:]:
            fronts = [self._node(j, self.table[fewer], EVERY)[-1] for j, fewer in _fewer(vector)]
            self.table[vector] = np.minimum.reduce([none, *fronts])

    def _single(self, place: int) -> Array:
        """[3, ranges, n, W] cost of a stage of up to W - 1 layers by role.

        INFINITY where its time is out of range, as of all stages of W layers and more.
        """
        low, high = self.low[:, None, None], self.high[:, None, None]
        width = np.flatnonzero((self.room.busy[place] <= high.max()).any(axis=0)).max(initial=0)
        time = self.room.busy[place][:, : width + 1]
        fits = time <= high
        roles = (
            (self.weights.after, np.where(low == high, time < high, fits)),
            (self.weights.slowest, fits & (time >= low)),
            (self.weights.before, fits),
        )
        return np.stack(
            [np.where(ok, own * time + bound * low, INFINITY) for (own, bound), ok in roles]
        )

    def _positions(self, j: int, end: int) -> Iterator[_Position]:
        """Stages on a node of group j in front of which it is filled by `end` GPUs, from behind."""
        size = self.places.node_gpus[j]
        for gpus, place in self.places.of_group(j).items():
            if gpus <= end and may_start(self.places.split, gpus, size - end):
                yield _Position(place, end - gpus)

    def _node(self, j: int, behind: Array, ranges: slice) -> list[Array]:
        """Tables of some ranges with 0, 1, .. GPUs of a node of group j in front of `behind`."""
        found = [behind]
        for end in range(1, self.places.node_gpus[j] + 1):
            table = np.full_like(behind, INFINITY)
            for place, filled in self._positions(j, end):
                self._extend(table, place, found[filled], ranges)
            found.append(table)
        return found

    def _extend(self, into: Array, place: int, rest: Array, ranges: slice) -> None:
        """Lowers `into` to a stage in front of what is in `rest`."""
        for made, own, behind in _choices():
            for row in np.flatnonzero((rest[behind] < INFINITY).any(axis=(0, 2))).tolist():
                single = self._fitting(place, own, row, ranges)
                whole = (single + _onward(rest[behind, :, row], single.shape[-1])).min(axis=2)
                target = into[made, :, min(row + 1, self.room.rows - 1)]
                np.minimum(target, whole, out=target)

    def _fitting(self, place: int, role: int, row: int, ranges: slice) -> Array:
        """[ranges, n, W] cost of a stage that so many follow."""
        single = self.singles[place][role, ranges]
        if self.room.rows == 1:
            return single
        return np.where(self.room.fits[place][row, :, : single.shape[-1]], single, INFINITY)

    def bounds(self, finals: Sequence[Counts], b: int) -> tuple[int, Counts]:
        """Least cost of all layers on any of the node counts, and which."""
        return min((int(self.table[v][WITH, b, :, 0].min()), v) for v in finals)

    def template(self, vector: Counts, b: int) -> tuple[Template, list[int]]:
        """The template of least cost and its stage times."""
        row = int(self.table[vector][WITH, b, :, 0].argmin())
        state, groups, stages, times = (WITH, row, 0), list[int](), list[Stage](), list[int]()
        while any(vector):
            j, vector, tables = self._front(vector, state, b)
            filled, size = self.places.node_gpus[j], self.places.node_gpus[j]
            while filled:
                position, following = self._next(j, filled, tables, state, b)
                layers, place = (state[2], following[2]), position.place
                held = self.room.held[following[1]]
                recomputed = self.places.memory.recomputed(place, held, layers)
                gpus = filled - position.filled
                stages.append(stage_on(layers, len(groups), size - filled, gpus, recomputed))
                times.append(int(self.room.busy[place][layers[0], layers[1] - layers[0]]))
                state, filled = following, position.filled
            groups.append(j)
        return Template(node_groups=tuple(groups), stages=tuple(stages)), times

    def _front(
        self, vector: Counts, state: tuple[int, int, int], b: int
    ) -> tuple[int, Counts, list[Array]]:
        """Group of the first node that attains a cost, the nodes behind it, and its tables."""
        role, row, start = state
        for j, fewer in _fewer(vector):
            if (j, fewer, b) not in self._known:
                own = slice(b, b + 1)
                self._known[j, fewer, b] = self._node(j, self.table[fewer][:, own], own)
            tables = self._known[j, fewer, b]
            if tables[-1][role, 0, row, start] == self.table[vector][role, b, row, start]:
                return j, fewer, tables
        raise AssertionError("no first node attains the cost")

    def _next(
        self, j: int, filled: int, tables: list[Array], state: tuple[int, int, int], b: int
    ) -> tuple[_Position, tuple[int, int, int]]:
        """The stage that attains a cost, and role, row and first layer of what follows it."""
        role, row, start = state
        wanted = tables[filled][role, 0, row, start]
        rows = [r for r in range(self.room.rows) if min(r + 1, self.room.rows - 1) == row]
        every = product(self._positions(j, filled), _choices(), rows)
        for position, (made, own, behind), before in every:
            if made == role:
                single = self._fitting(position.place, own, before, slice(b, b + 1))[0, start]
                onward = _onward(tables[position.filled][behind, 0, before], single.shape[-1])
                hits = np.flatnonzero(single + onward[start] == wanted)
                if len(hits):
                    return position, (behind, before, start + int(hits[0]))
        raise AssertionError("no stage attains the cost")


def _onward(rest: Array, width: int) -> Array:
    """[.., n, W] of [.., n] what follows 0, 1, .. W - 1 layers from each on."""
    beyond = np.full((*rest.shape[:-1], width - 1), INFINITY)
    return sliding_window_view(np.concatenate([rest, beyond], axis=-1), width, axis=-1)


def _choices() -> Iterator[tuple[int, int, int]]:
    """Role made of a stage and what follows it, that of the stage, that of what follows."""
    for made, parts in _MADE.items():
        for own, behind in parts:
            yield made, own, behind


def _fewer(vector: Counts) -> list[tuple[int, Counts]]:
    """Every group with a node, and the vector without it."""
    return [(j, (*vector[:j], n - 1, *vector[j + 1 :])) for j, n in enumerate(vector) if n]
