"""Bounds of templates that begin with certain stages: what the stages after them cost at least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solver.layered.problem import INFINITY, Array
from solver.templates.levels import Level
from solver.templates.stage_terms import StageTerms

#: Slowest operations of less than this share of what the slowest stage adds, over the steps, are
#: told apart from none only by the search.
SLOW_SHARE = 0.7

Units = NDArray[np.int32]

#: Times of tables have so many bits; NEVER is more than any, and two of them still fit.
UNIT_BITS = 28
NEVER = np.int32(1 << 29)

_NONE: Array = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Classes:
    """Classes of what stages add to the latency, and of the slowest operation before a stage.

    low, high: [C] together all that a template below the cutoff may add. slow: [K] ascending from
    0; class k has slowest operations of slow[k] and more.
    """

    low: Array
    high: Array
    slow: Array

    def slow_class(self, slow: Array) -> Array:
        """Class of slowest operations."""
        found: Array = np.searchsorted(self.slow, slow, side="right") - 1
        return found


def classes(
    levels: Sequence[Level], steps: int, least: int, most: int, number: int, slow: int
) -> Classes:
    """`number` classes of what is added from `least` to `most`, and `slow` of operations.

    Operations that matter take about 1 / `steps` of what is added, up to the slowest there is.
    """
    edges = np.unique(least + max(0, most - least) * np.arange(number + 1) // number)
    low, high = (edges[:-1], edges[1:]) if len(edges) > 1 else (edges, edges)
    slowest = max(int(level.longer.max(initial=0)) for level in levels)
    first = min(slowest, int(SLOW_SHARE * least / max(1, steps)))
    around = first + (slowest - first) * np.arange(slow - 1) // (slow - 1)
    return Classes(low, high, np.unique([0, *around]))


class Completions:
    """Least latency of what follows a node, by classes: `table[r]` is [N, C, K] with r stages left.

    Of stages that add no more than their class of C allows, where the slowest operation before
    them is of class K: (1) of `stage_terms` with steady_i = (m - 1 - w_i) t_i, and rounds. A stage
    makes the class of what follows it that of its own operation, if that is slower. Completions
    from a higher class are none from a lower one that are faster, so the larger of both bounds
    holds. So a template that begins like a prefix of latency l, slowest operation s and added E
    costs at least

        l + min over c of ( table[., c, class of s] + max(low[c], E) ).

    Tables are in units of 2^shift ns, every latency rounded down, so that 32 bits hold them.
    """

    def __init__(
        self, levels: Sequence[Level], terms: StageTerms, chosen: Classes, cutoff: int
    ) -> None:
        self.levels, self.terms, self.classes, self.cutoff = levels, terms, chosen, cutoff
        self.shift = max(0, cutoff.bit_length() - UNIT_BITS)
        ends = int(levels[0].target.max(initial=0)) + 1
        self.table: list[Units] = [
            np.zeros((ends, len(chosen.low), len(chosen.slow)), dtype=np.int32)
        ]
        for level in levels:
            self.table.append(self._before(level, self.table[-1]))

    def _before(self, level: Level, rest: Units) -> Units:
        if not len(level):
            return np.full((level.num_sources, *rest.shape[1:]), NEVER)
        own = self.classes.slow_class(level.longer)
        whole = rest[level.target]
        np.maximum(whole, rest[level.target, :, own][..., None], out=whole)
        whole += (level.latency >> self.shift).astype(np.int32)[:, None, None]
        too_much = whole > self._most_latency(level)[..., None]
        too_much |= np.arange(rest.shape[1])[:, None] < self._least_class(level)[:, None]
        # Three times as fast as putting NEVER where a mask says so.
        np.maximum(whole, np.multiply(too_much, NEVER, dtype=np.int32), out=whole)
        return level.least(whole, NEVER)

    def _least_class(self, level: Level) -> Array:
        """[M, K] the lowest class that allows what stages add by (1)."""
        warm = int(self.terms.warm(np.array(level.after)))
        slow = np.maximum(self.classes.slow, level.longer[:, None])
        added = (self.terms.steps - warm) * level.work[:, None] + warm * slow
        found: Array = np.searchsorted(self.classes.high, added)
        return found

    def _most_latency(self, level: Level) -> Units:
        """[M, C] the most that stages and what follows may take, by rounds and the cutoff."""
        most = np.full((len(level), len(self.classes.high)), self.cutoff)
        work = level.work[:, None]
        allowed = self.terms.onward_by_rounds(work, self.classes.high, level.after)
        if allowed is not None:
            most = np.minimum(most, allowed + (level.latency - level.busy)[:, None])
        return (most >> self.shift).astype(np.int32)

    def rounds(self, work: Array, busy: Array, rest: Array, after: int) -> Array:
        """What rounds of stages and at least `rest` after them add, as far as the cutoff tells."""
        return self.terms.by_rounds(work, np.minimum(rest + busy, self.cutoff), after)

    @cached_property
    def _above(self) -> list[Units]:
        """Per table [C + 1, N, K]: least of table and low over a class and all higher ones."""
        found, low = [], (self.classes.low >> self.shift).astype(np.int32)
        for table in self.table:
            nodes, number, slow = table.shape
            above = np.full((number + 1, nodes, slow), NEVER)
            np.add(table.transpose(1, 0, 2), low[:, None, None], out=above[:-1])
            for c in reversed(range(number)):
                np.minimum(above[c], above[c + 1], out=above[c])
            found.append(above)
        return found

    def _time(self, units: Units) -> Array:
        """Times in ns, INFINITY for what never ends."""
        return np.where(units < NEVER, units.astype(np.int64) << self.shift, INFINITY)

    def rest(self, level: Level, stages: Array, slow: Array, added: Array) -> Array:
        """[M] least of what follows these stages of a level and what is added, together.

        slow, added: [M] of the prefixes that end with them. Of classes whose low is below what is
        added already, the highest has the least latency. Rounds count with the least of all.
        """
        table, above = self.table[level.after], self._above[level.after]
        node, own = level.target[stages], self.classes.slow_class(slow)
        least = self._time(table[node, -1, own])
        rounds = self.rounds(level.work[stages], level.busy[stages], least, level.after)
        added = np.maximum(added, rounds)
        higher = np.searchsorted(self.classes.low, added, side="right")
        within = self._time(table[node, np.maximum(higher - 1, 0), own])
        within += np.maximum(added, self.classes.low[0])
        found: Array = np.minimum(within, self._time(above[higher, node, own]))
        return found

    def roots(self, num_stages: int, nodes: Array) -> Array:
        """[N, C] bounds of templates of so many stages, by start node and class."""
        found: Array = self._time(self.table[num_stages][nodes, :, 0]) + self.classes.low
        return found

    def by_class(self, starts: Mapping[int, Array]) -> Array:
        """[C] bounds of all templates that add as much as a class."""
        bounds = [self.roots(p, nodes).min(axis=0) for p, nodes in starts.items()]
        found: Array = np.min(bounds, axis=0, initial=INFINITY)
        return found

    def pruned(self, starts: Mapping[int, Array], cutoff: int) -> list[Level]:
        """The levels without stages whose templates are not below `cutoff`.

        What comes before a stage costs at least the latency of the stages before it that add no
        more than the class allows.
        """
        kept = list[Level]()
        lead = np.full((len(self.table[-1]), len(self.classes.low)), INFINITY)
        for level, rest in zip(reversed(self.levels), reversed(self.table[:-1]), strict=True):
            lead[starts.get(level.after + 1, _NONE)] = 0
            own = self.classes.slow_class(level.longer)
            added = self.terms.alone(level.work, level.longer, np.array(level.after))
            through = lead[level.source] + level.latency[:, None]
            through[added[:, None] > self.classes.high] = INFINITY
            whole = through + self._time(rest[level.target, :, own]) + self.classes.low
            keep = whole.min(axis=1) < cutoff
            kept.append(level.take(keep))
            lead = kept[-1].into_targets(through[keep], len(rest))
        return kept[::-1]
