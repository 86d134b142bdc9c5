"""Bounds of the last stages of templates, for all numbers of stages and all node counts at once.

A suffix is what stands from a state of the graph, a layer and a number of stages on to the end.
Node counts that are less than the graph's are suffixes too: the graph from a later state on.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from solver.layered.problem import INFINITY, Array, Mask
from solver.templates.chains import Counts
from solver.templates.graph import State, Step, TemplateGraph
from solver.templates.stage_terms import StageTerms

#: More than any stage adds.
NO_LIMIT = int(INFINITY) - 1
#: By number of layers: [P, first layer] of a kind of stage.
ByLength = list[tuple[int, Array]]


class Suffixes:
    """Tables [S, P + 1, n] by state, stages from there on, and first layer.

    Templates of one stage are left out of all that starts with a template's first stage.
    """

    def __init__(self, graph: TemplateGraph, terms: StageTerms) -> None:
        """`graph`: of one vector of node counts, of which all others are parts."""
        self.graph, self.terms, self.places = graph, terms, graph.places
        self.states = list(graph.steps)
        self.row = {state: i for i, state in enumerate(self.states)}
        self.rows_of = graph.stages_from
        self.most = min(self.places.num_layers, max(high for _, high in self.rows_of.values()))
        fits = graph.room_by_followers(terms.micro_batches, max(1, self.most))
        self.fits: Mask = np.stack(fits)  #: [C, P, n, n] by place and stages that follow
        self._kinds = dict[tuple[int, int], list[tuple[int, Array, Array]]]()

    @cached_property
    def _work(self) -> Array:
        work: Array = self.places.forward + self.places.backward
        return work

    def kind(self, step: Step) -> tuple[int, int]:
        """Place, and transfer back to the stage before if that is part of the work."""
        return step.place, self.sends(step)[1] if self.places.blocking else 0

    def sends(self, step: Step) -> tuple[int, int]:
        """Transfers of a step from the stage before, and back to it."""
        last = step.before.place
        if last is None:
            return 0, 0
        pair = int(step.fresh), last, step.place
        return int(self.places.send[pair]), int(self.places.send_back[pair])

    def _stages(self, kind: tuple[int, int]) -> list[tuple[int, Array, Array]]:
        """Number of layers, latency [starts] and term [P, starts] of stages that fit."""
        if kind not in self._kinds:
            place, back = kind
            after, size = np.arange(self.most)[:, None], self.places.num_layers + 1
            found = []
            for length in range(1, size):
                start = np.arange(size - length)
                fits = self.fits[place][:, start, start + length]
                if fits.any():
                    device = self.terms.device(place, start, start + length, back, after)
                    term = np.where(fits, self.terms.alone(*device, after), INFINITY)
                    found.append((length, self._work[place, start, start + length], term))
            self._kinds[kind] = found
        return self._kinds[kind]

    @cached_property
    def most_term(self) -> int:
        """The most that a stage adds alone."""
        terms = [
            own[2][own[2] < INFINITY]
            for kind in self._kinds_of_steps()
            for own in self._stages(kind)
        ]
        return max((int(one.max()) for one in terms), default=0)

    def _kinds_of_steps(self) -> set[tuple[int, int]]:
        return {self.kind(step) for steps in self.graph.steps.values() for step in steps}

    def latencies(self, limit: int, finals: Sequence[Counts]) -> Array:
        """Least latency of suffixes whose stages alone add at most `limit` each.

        Only of those that lie on ways of `finals`, INFINITY elsewhere.
        """
        costs = {
            kind: [
                (length, np.where(term <= limit, work, INFINITY))
                for length, work, term in self._stages(kind)
                if term.min() <= limit
            ]
            for kind in self._kinds_of_steps()
        }
        return self._swept(costs, finals, lambda rest, own, send: rest + own + send)

    def least_terms(self, finals: Sequence[Counts]) -> Array:
        """Least that the slowest stage of a suffix adds alone."""
        costs = {
            kind: [(length, term) for length, _, term in self._stages(kind)]
            for kind in self._kinds_of_steps()
        }
        return self._swept(costs, finals, lambda rest, own, send: np.maximum(rest, own))

    def _swept(
        self,
        costs: dict[tuple[int, int], ByLength],
        finals: Sequence[Counts],
        joined: Callable[[Array, Array, int], Array],
    ) -> Array:
        size = self.places.num_layers + 1
        table = np.full((len(self.states), self.most + 1, size), INFINITY)
        for i in reversed(range(len(self.states))):
            state = self.states[i]
            if not self._on_the_way(state, finals):
                continue
            if self.graph.is_end(state):
                table[i, 0, -1] = 0
            for step in self.graph.steps[state]:
                low, high = self.rows_of[step.after]
                rows = slice(low, min(high, self.most - 1) + 1)
                rest, into = table[self.row[step.after], rows], table[i, rows.start + 1 :]
                send = sum(self.sends(step))
                for length, cost in costs[self.kind(step)]:
                    left = size - length - low
                    if left <= 0 or not len(rest):
                        break
                    whole = joined(rest[:, length : length + left], cost[rows, :left], send)
                    target = into[: len(whole), :left]
                    np.minimum(target, whole, out=target)
        return table

    def _on_the_way(self, state: State, finals: Sequence[Counts]) -> bool:
        """Whether templates on some of `finals` may have the state, as they end with the graph."""
        left = [all - used for all, used in zip(self.graph.finals[0], state.used, strict=True)]
        return any(all(map(int.__le__, left, final)) for final in finals)

    def first_steps(self, final: Counts) -> list[Step]:
        """Ways to place the first stage of templates on these node counts."""
        used = tuple(map(int.__sub__, self.graph.finals[0], final))
        return self.graph.steps_from(State(used, 0, None))

    def first_tail(self, step: Step, end: Array) -> Array:
        """What follows the last backward of a first stage of layers [0, end), at least."""
        places = self.places
        shared = 0
        if places.tied:
            shared = int(places.embedding[:, step.place].min())
        found: Array = places.finish[step.place, 0, end] + shared
        return found

    def whole(self, table: Array, final: Counts, limit: int) -> Array:
        """[P + 1] least latency, tail of the first stage included, of templates on `final`.

        table: the `latencies` for the same limit.
        """
        return self._wholes(
            table,
            final,
            lambda rest, step, end, term: np.where(
                term <= limit,
                rest + self._work[step.place, 0, end] + self.first_tail(step, end),
                INFINITY,
            ),
        )

    def whole_terms(self, table: Array, final: Counts) -> Array:
        """[P + 1] least that the slowest stage of templates on `final` adds alone."""
        return self._wholes(table, final, lambda rest, step, end, term: np.maximum(rest, term))

    def _wholes(
        self, table: Array, final: Counts, joined: Callable[[Array, Step, Array, Array], Array]
    ) -> Array:
        found = np.full(self.most + 1, INFINITY)
        end = np.arange(1, self.places.num_layers + 1)
        for step in self.first_steps(final):
            rest = table[self.row[step.after], :-1, 1:]
            term = self.first_terms(step, end)
            whole = joined(rest, step, end, term).min(axis=1)
            found[2:] = np.minimum(found[2:], whole[1:])
        return np.minimum(found, INFINITY)

    def first_terms(self, step: Step, end: Array) -> Array:
        """[P, ends] what a first stage adds alone; INFINITY where it does not fit."""
        after = np.arange(self.most)[:, None]
        device = self.terms.device(step.place, 0 * end, end, 0, after)
        fits: Mask = self.fits[step.place][:, 0, end]
        found: Array = np.where(fits, self.terms.alone(*device, after), INFINITY)
        return found

    def walk(
        self, table: Array, final: Counts, num_stages: int, limit: int
    ) -> tuple[list[Step], list[int]]:
        """Steps and layer boundaries of a template of least latency, as `table` says.

        table: latencies of suffixes, those that do not count INFINITY. There must be one whose
        stages add at most `limit` alone.
        """
        steps, ends = list[Step](), [0]
        state: State | None = None
        for after in reversed(range(num_stages)):
            begin = ends[-1]
            end = np.arange(begin + 1, self.places.num_layers + 1)
            choices = self.first_steps(final) if state is None else self.graph.steps[state]
            found = [
                self._cost(step, begin, end, after, limit) + table[self.row[step.after], after, end]
                for step in choices
            ]
            best = min(range(len(found)), key=lambda i: int(found[i].min()))
            steps.append(choices[best])
            ends.append(int(end[found[best].argmin()]))
            state = choices[best].after
        return steps, ends

    def _cost(self, step: Step, begin: int, end: Array, after: int, limit: int) -> Array:
        """[ends] latency of one stage, INFINITY where it adds too much or does not fit."""
        start, follow = np.full_like(end, begin), np.array(after)
        device = self.terms.device(step.place, start, end, self.kind(step)[1], follow)
        fits = self.fits[step.place, after, begin, end]
        latency = self._work[step.place, begin, end] + sum(self.sends(step))
        if step.before.place is None:
            latency = latency + self.first_tail(step, end)
        allowed = fits & (self.terms.alone(*device, follow) <= limit)
        return np.where(allowed, latency, INFINITY)
