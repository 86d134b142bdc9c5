"""Whole templates: a first stage before a suffix."""

from collections.abc import Callable

import numpy as np

from solver.layered.problem import INFINITY, Array, Mask
from solver.templates.chains import Counts
from solver.templates.graph import State, Step
from solver.templates.suffixes import Suffixes


class WholeTemplates:
    """Templates whose stages after the first one are suffixes."""

    def __init__(self, suffixes: Suffixes) -> None:
        self.suffixes = suffixes

    def first_steps(self, final: Counts) -> list[Step]:
        """Ways to place the first stage of templates on these node counts."""
        used = tuple(map(int.__sub__, self.suffixes.graph.finals[0], final))
        return self.suffixes.graph.steps_from(State(used, 0, None))

    def first_tail(self, step: Step, end: Array) -> Array:
        """What follows the last backward of a first stage of layers [0, end), at least."""
        places = self.suffixes.places
        shared = 0
        if places.tied:
            shared = int(places.embedding[:, step.place].min())
        found: Array = places.finish[step.place, 0, end] + shared
        return found

    def latencies(self, table: Array, final: Counts, limit: int) -> Array:
        """[P + 1] least latency, tail of the first stage included, of templates on `final`.

        table: the `latencies` for the same limit.
        """
        return self._wholes(
            table,
            final,
            lambda rest, step, end, term: np.where(
                term <= limit,
                rest + self.suffixes.work[step.place, 0, end] + self.first_tail(step, end),
                INFINITY,
            ),
        )

    def terms(self, table: Array, final: Counts) -> Array:
        """[P + 1] least that the slowest stage of templates on `final` adds alone."""
        return self._wholes(table, final, lambda rest, step, end, term: np.maximum(rest, term))

    def _wholes(
        self, table: Array, final: Counts, joined: Callable[[Array, Step, Array, Array], Array]
    ) -> Array:
        found = np.full(self.suffixes.most + 1, INFINITY)
        end = np.arange(1, self.suffixes.places.num_layers + 1)
        for step in self.first_steps(final):
            rest = table[self.suffixes.row[step.after], :-1, 1:]
            term = self.first_terms(step, end)
            whole = joined(rest, step, end, term).min(axis=1)
            found[2:] = np.minimum(found[2:], whole[1:])
        return np.minimum(found, INFINITY)

    def first_terms(self, step: Step, end: Array) -> Array:
        """[P, ends] what a first stage adds alone; INFINITY where it does not fit."""
        after = np.arange(self.suffixes.most)[:, None]
        device = self.suffixes.terms.device(step.place, 0 * end, end, 0, after)
        fits: Mask = self.suffixes.fits[step.place][:, 0, end]
        found: Array = np.where(fits, self.suffixes.terms.alone(*device, after), INFINITY)
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
            end = np.arange(begin + 1, self.suffixes.places.num_layers + 1)
            choices = self.first_steps(final) if state is None else self.suffixes.graph.steps[state]
            found = [
                self._cost(step, begin, end, after, limit)
                + table[self.suffixes.row[step.after], after, end]
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
        device = self.suffixes.terms.device(
            step.place, start, end, self.suffixes.kind(step)[1], follow
        )
        fits = self.suffixes.fits[step.place, after, begin, end]
        latency = self.suffixes.work[step.place, begin, end] + sum(self.suffixes.sends(step))
        if step.before.place is None:
            latency = latency + self.first_tail(step, end)
        allowed = fits & (self.suffixes.terms.alone(*device, follow) <= limit)
        return np.where(allowed, latency, INFINITY)
