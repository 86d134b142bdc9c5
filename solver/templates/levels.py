"""The stages that templates below a cutoff may have, by the number of stages that follow.

A node is a state of the graph and a layer; a stage leads from a node to one of the next level down.
First stages lead from nodes of their own, on every level: templates of all numbers of stages share
what they have in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from formulations.template import Template
from solver.layered.problem import INFINITY, Array, Mask, runs
from solver.templates.chains import Counts
from solver.templates.graph import Step
from solver.templates.judge import Stages
from solver.templates.shared_bounds import Known
from solver.templates.suffixes import Suffixes
from solver.templates.whole import WholeTemplates

Number = TypeVar("Number", np.int32, np.int64)


@dataclass(frozen=True)
class Level:
    """M stages that `after` others follow, sorted by source; N sources, ns.

    source, target: nodes of this level and of the next one down. step: number in
    `StepTable.steps`. start, end: layers. latency: times and transfers from the stage before, with
    the tail of a first stage. busy: times alone. work, longer: see `StageTerms.device`. again: see
    `StageTerms.visited_again`, 0 for a first stage.
    """

    after: int
    num_sources: int
    source: Array
    target: Array
    step: Array
    start: Array
    end: Array
    latency: Array
    busy: Array
    work: Array
    longer: Array
    again: Array

    def __len__(self) -> int:
        return len(self.source)

    def take(self, keep: Mask) -> "Level":
        """The stages of a mask."""
        arrays = {
            one.name: getattr(self, one.name)[keep]
            for one in fields(self)
            if one.name not in ("after", "num_sources")
        }
        return Level(self.after, self.num_sources, **arrays)

    @cached_property
    def range_of(self) -> tuple[Array, Array]:
        """[N] first stage and number of stages of every source."""
        count = np.bincount(self.source, minlength=self.num_sources)
        return np.cumsum(count) - count, count

    def least(self, cost: NDArray[Number], most: Number) -> NDArray[Number]:
        """[N, ..] least of `cost` [M, ..] over the stages of every source; `most` without any."""
        first, count = self.range_of
        return _least_of_runs(cost, first, count, most)

    def into_targets(self, cost: Array, number: int) -> Array:
        """[number, ..] least of `cost` [M, ..] over the stages into every target."""
        order = np.argsort(self.target, kind="stable")
        count = np.bincount(self.target, minlength=number)
        return _least_of_runs(cost[order], np.cumsum(count) - count, count, INFINITY)


def _least_of_runs(
    cost: NDArray[Number], first: Array, count: Array, most: Number
) -> NDArray[Number]:
    """[N, ..] least of the `count` rows of `cost` from `first` on; `most` where there are none.

    Runs are short: row by row of all of them is faster than `ufunc.reduceat`.
    """
    least = np.full((len(count), *cost.shape[1:]), most)
    for i in range(int(count.max(initial=0))):
        some = np.flatnonzero(count > i)
        least[some] = np.minimum(least[some], cost[first[some] + i])
    return least


class StepTable:
    """All steps of a graph, and those of first stages on some node counts, as arrays."""

    def __init__(self, suffixes: Suffixes, finals: Sequence[Counts]) -> None:
        whole = WholeTemplates(suffixes)
        own = [suffixes.graph.steps[state] for state in suffixes.states]
        own += [whole.first_steps(final) for final in finals]
        self.num_states, self.num_starts = len(suffixes.states), len(finals)
        self.steps: list[Step] = [step for steps in own for step in steps]
        self.count = np.array([len(steps) for steps in own], dtype=np.int64)
        self.offset = np.cumsum(self.count) - self.count
        sends = np.array([suffixes.sends(step) for step in self.steps], dtype=np.int64)
        self.send, self.back = sends.reshape(-1, 2).T
        self.after = np.array([suffixes.row[step.after] for step in self.steps], dtype=np.int64)
        self.place = np.array([step.place for step in self.steps], dtype=np.int64)
        self.fresh = np.array([step.fresh for step in self.steps], dtype=np.int64)


class LevelBuilder:
    """Levels of templates on `finals`, no stage of which adds more than `most_added` alone."""

    def __init__(
        self, suffixes: Suffixes, finals: Sequence[Counts], known: Known, most_added: int
    ) -> None:
        self.suffixes, self.known, self.most_added = suffixes, known, most_added
        self.terms, self.places = suffixes.terms, suffixes.places
        self.table = StepTable(suffixes, finals)
        self.size = self.places.num_layers + 1

    def build(self, cutoff: int, numbers: Sequence[int]) -> tuple[list[Level], dict[int, Array]]:
        """Levels of templates of so many stages below `cutoff`, and by number the start nodes.

        `levels[r]` are the stages that r others follow.
        """
        levels, starts = list[Level](), dict[int, Array]()
        keys, lead = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        table = self.table
        fresh = (table.num_states + np.arange(table.num_starts)) * self.size
        for after in reversed(range(max(numbers))):
            if after + 1 in numbers:
                starts[after + 1] = len(keys) + np.arange(table.num_starts)
                keys = np.concatenate([keys, fresh])
                lead = np.concatenate([lead, np.zeros_like(fresh)])
            level, keys, lead = self._level(after, keys, lead, cutoff)
            levels.append(level)
        return levels[::-1], starts

    def stages(self, levels: Sequence[Level], paths: Array) -> Stages:
        """Stages of complete paths [N, p] through p levels."""
        step, start, end = (
            np.stack([getattr(one, name)[paths[:, r]] for r, one in enumerate(levels)][::-1])
            for name in ("step", "start", "end")
        )
        return Stages(self.table.place[step], start, end, self.table.fresh[step[1:]])

    def template(self, levels: Sequence[Level], path: Array) -> Template:
        """The template of a complete path [p]."""
        chosen = list(zip(levels, path.tolist(), strict=True))[::-1]
        steps = [self.table.steps[level.step[i]] for level, i in chosen]
        ends = [0, *(int(level.end[i]) for level, i in chosen)]
        return self.suffixes.graph.template(steps, ends)

    def _level(
        self, after: int, keys: Array, first: Array, cutoff: int
    ) -> tuple[Level, Array, Array]:
        """The level of these nodes, and nodes and least latencies of the next one."""
        source, step, start, end = self._candidates(after, keys)
        table = self.table
        place, back, follow = table.place[step], table.back[step], np.array(after)
        began = keys[source] >= table.num_states * self.size
        busy, send = self._work[place, start, end], table.send[step] + back
        latency = busy + send
        latency[began] += self._tails[place[began], end[began]]
        work, longer = self.terms.device(place, start, end, back, follow)
        lead = first[source] + latency
        onward = table.after[step], np.full_like(end, after), end
        alone = self.terms.alone(work, longer, follow)
        keep = self.known.bound[onward] + lead < cutoff
        keep &= self.known.latency[onward] + alone + lead < cutoff
        again = np.where(began, 0, self.terms.visited_again(work, send, after))
        nodes, target = np.unique((table.after[step] * self.size + end)[keep], return_inverse=True)
        least = np.full(len(nodes), INFINITY)
        np.minimum.at(least, target, lead[keep])
        columns = (step, start, end, latency, busy, work, longer, again)
        level = Level(after, len(keys), source[keep], target, *(one[keep] for one in columns))
        return level, nodes, least

    @cached_property
    def _work(self) -> Array:
        work: Array = self.places.forward + self.places.backward
        return work

    @cached_property
    def _tails(self) -> Array:
        """[C, n] tail of a first stage by its place and last layer."""
        ends = np.arange(self.size)
        found = np.zeros((len(self.places.gpus), self.size), dtype=np.int64)
        for step in self.table.steps:
            if step.before.place is None:
                found[step.place] = WholeTemplates(self.suffixes).first_tail(step, ends)
        return found

    def _candidates(self, after: int, keys: Array) -> tuple[Array, Array, Array, Array]:
        """Source, step, start and end of all stages that fit and alone are below the cutoff."""
        table, size = self.table, self.size
        state, layer = np.divmod(keys, size)
        layer = np.where(state >= table.num_states, 0, layer)
        count = table.count[state]
        source, step = runs(table.offset[state], count)
        place, start = table.place[step], layer[source]
        ends = self._ends(after)[place, start]
        number = np.maximum(0, ends - start)
        pick, end = runs(start + 1, number)
        source, step, start, place = source[pick], step[pick], start[pick], place[pick]
        fits = self.suffixes.fits[place, after, start, end]
        return source[fits], step[fits], start[fits], end[fits]

    def _ends(self, after: int) -> Array:
        """[C, n] the last layer that a stage from a layer on may have."""
        places, ends = np.arange(len(self.places.gpus)), np.arange(self.size)
        start, follow = ends[:, None], np.array(after)
        device = self.terms.device(places[:, None, None], start, ends, 0, follow)
        may = (self.terms.alone(*device, follow) <= self.most_added) & (ends > start)
        last = np.where(may, ends, 0).max(axis=-1)
        found: Array = np.minimum(last, self.size - 1 - after)
        return found
