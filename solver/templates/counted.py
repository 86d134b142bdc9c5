"""The tables of `bottleneck` with memory: what comes after a stage is counted.

A 1F1B stage holds as many micro-batches as stages follow it, plus one. So templates are built from
the last stage on, over the GPU positions of `graph`, and states also know how many stages there
are so far: what fits is then decided exactly. Slower than `chains`, by the number of stages; used
where the best template without this limit does not fit.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from formulations.template import Template
from solver.layered.gpu_graph import Counts, GpuGraph, State, Step
from solver.layered.problem import INFINITY, Array, Mask
from solver.templates.chains import AFTER, BEFORE, WITH, Weights

#: Role of what a stage makes with what follows it: its own, and that of what follows.
_MADE = {AFTER: ((AFTER, AFTER),), WITH: ((WITH, AFTER), (BEFORE, WITH))}


class CountedTables:
    """Least costs from every state to the end, [2, ranges, stages, layers], for one graph.

    Templates of one stage are left out.
    """

    def __init__(
        self, graph: GpuGraph, weights: Weights, micro_batches: int, low: Array, high: Array
    ) -> None:
        self.graph, self.weights, self.low, self.high = graph, weights, low, high
        self.micro_batches = micro_batches
        places = graph.places
        self.busy = places.forward + places.backward
        self.most = max(graph.numbers, default=0)
        self.fits = graph.room_by_followers(micro_batches, self.most)
        self.singles = {
            (x, role): self._single(x, role)
            for x in range(len(places.gpus))
            for role in (BEFORE, AFTER, WITH)
        }
        self.table = dict[State, Array]()
        for state in reversed(graph.steps):
            self._add(state)

    def _single(self, place: int, role: int) -> Array:
        """[ranges, n, n] cost of one stage in a role, INFINITY where its time is out of range."""
        time, low, high = self.busy[place], self.low[:, None, None], self.high[:, None, None]
        own, multiple = {
            BEFORE: self.weights.before,
            WITH: self.weights.slowest,
            AFTER: self.weights.after,
        }[role]
        fits: Mask = (time <= high) & self.fits[place].any(axis=0)
        if role == AFTER:
            fits = np.where(low == high, fits & (time < high), fits)
        if role == WITH:
            fits = fits & (time >= low)
        return np.where(fits, own * time + multiple * low, INFINITY)

    def _add(self, state: State) -> None:
        size = self.graph.places.num_layers + 1
        table = np.full((2, len(self.low), self.most + 1, size), INFINITY)
        if self.graph.is_end(state):
            table[AFTER - 1, :, 0, -1] = 0
        for step in self.graph.steps[state]:
            for made, parts in _MADE.items():
                for role, rest in parts:
                    self._extend(table[made - 1], step, role, self.table[step.after][rest - 1])
        self.table[state] = table

    def _extend(self, into: Array, step: Step, role: int, rest: Array) -> None:
        """Lowers `into` to a stage in a role before what follows, by the length of the stage."""
        single = self.singles[step.place, role]
        rows = np.flatnonzero((rest[:, :-1] < INFINITY).any(axis=(0, 2)))
        first, end = np.nonzero((single < INFINITY).any(axis=0))
        if not len(rows) or not len(first):
            return
        own, longer = slice(rows[0], rows[-1] + 1), slice(rows[0] + 1, rows[-1] + 2)
        for length in np.unique(end - first).tolist():
            starts = np.arange(single.shape[-1] - length)
            cost = single[:, starts, starts + length]
            fits = self.fits[step.place][own, starts, starts + length]
            whole = np.where(fits, rest[:, own, length:] + cost[:, None], INFINITY)
            target = into[:, longer, : len(starts)]
            np.minimum(target, whole, out=target)

    def bounds(self, finals: Sequence[Counts], b: int) -> tuple[int, Counts]:
        """Least cost of the graph's templates of two stages or more."""
        whole = self.table[self.graph.start][WITH - 1, b, 2:, 0]
        return int(whole.min(initial=INFINITY)), finals[0]

    def template(self, vector: Counts, b: int) -> tuple[Template, list[int]]:
        """The template of least cost and its stage times."""
        state, role, start = self.graph.start, WITH, 0
        left = 2 + int(self.table[state][WITH - 1, b, 2:, 0].argmin())
        steps, ends = list[Step](), [0]
        while left:
            step, role, end = self._next(state, role, left, start, b)
            steps.append(step)
            ends.append(end)
            state, start, left = step.after, end, left - 1
        times = [int(self.busy[step.place, *ends[k : k + 2]]) for k, step in enumerate(steps)]
        return self.graph.template(steps, ends, self.micro_batches), times

    def _next(
        self, state: State, role: int, left: int, start: int, b: int
    ) -> tuple[Step, int, int]:
        """The stage that attains a cost: its step, the role of what follows, its end."""
        wanted = self.table[state][role - 1, b, left, start]
        for step, own, rest in self._choices(state, role):
            follows = self.table[step.after][rest - 1, b, left - 1]
            fits = self.fits[step.place][left - 1, start]
            cost = np.where(fits, self.singles[step.place, own][b, start], INFINITY)
            hits = np.flatnonzero(follows + cost == wanted)
            if len(hits):
                return step, rest, int(hits[0])
        raise AssertionError("no stage attains the cost")

    def _choices(self, state: State, role: int) -> Iterator[tuple[Step, int, int]]:
        for step in self.graph.steps[state]:
            for own, rest in _MADE[role]:
                yield step, own, rest
