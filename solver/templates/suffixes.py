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
    def work(self) -> Array:
        """[C, n, n] forward and backward by place."""
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
                    found.append((length, self.work[place, start, start + length], term))
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
