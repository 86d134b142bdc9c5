"""Bounds of templates that begin with certain stages: what the stages after them cost at least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solver.enumeration.problem import INFINITY, Array
from solver.resilience.levels import Level
from solver.resilience.stage_terms import StageTerms

#: Slowest operations of less than this share of what the slowest stage adds, over the steps, are
#: told apart from none only by the search.
SLOW_SHARE = 0.7

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
    """Least latency of what follows a node, by classes: `table[r]` is [C, K, N] with r stages left.

    Of stages that add no more than their class of C allows, where the slowest operation before
    them is of class K: (1) of `stage_terms` with steady_i = (m - 1 - w_i) t_i, and rounds. A stage
    makes the class of what follows it that of its own operation, if that is slower. Completions
    from a higher class are none from a lower one that are faster, so the larger of both bounds
    holds. So a template that begins like a prefix of latency l, slowest operation s and added E
    costs at least

        l + min over c of ( table[c, class of s] + max(low[c], E) ).
    """

    def __init__(
        self, levels: Sequence[Level], terms: StageTerms, chosen: Classes, cutoff: int
    ) -> None:
        self.levels, self.terms, self.classes, self.cutoff = levels, terms, chosen, cutoff
        shape = len(chosen.low), len(chosen.slow)
        ends = int(levels[0].target.max(initial=0)) + 1
        self.table = [np.zeros((*shape, ends), dtype=np.int64)]
        for level in levels:
            self.table.append(self._before(level, self.table[-1]))

    def _before(self, level: Level, rest: Array) -> Array:
        chosen, steps, after = self.classes, self.terms.steps, np.array(level.after)
        warm = int(self.terms.warm(after))
        own = chosen.slow_class(level.longer)
        if not len(level):
            return np.full((*rest.shape[:2], level.num_sources), INFINITY)
        slower = rest[:, own, level.target]
        whole = np.maximum(rest[:, :, level.target], slower[:, None])
        slow = np.maximum(chosen.slow[:, None], level.longer)
        added = (steps - warm) * level.work + warm * slow
        most = chosen.high[:, None, None]
        rounds = self.rounds(level.work, level.busy, whole, level.after)
        kept = np.where((added <= most) & (rounds <= most), whole + level.latency, INFINITY)
        return level.from_sources(kept)

    def rounds(self, work: Array, busy: Array, rest: Array, after: int) -> Array:
        """What rounds of stages and at least `rest` after them add, as far as the cutoff tells."""
        return self.terms.by_rounds(work, np.minimum(rest + busy, self.cutoff), after)

    def rest(self, level: Level, stages: Array, slow: Array, added: Array) -> Array:
        """[M] least of what follows these stages of a level and what is added, together.

        slow, added: [M] of the prefixes that end with them. Rounds with the least that follows
        count for all classes.
        """
        table = self.table[level.after]
        node = self.classes.slow_class(slow) * table.shape[2] + level.target[stages]
        flat = table.reshape(len(table), -1)
        work, busy = level.work[stages], level.busy[stages]
        added = np.maximum(added, self.rounds(work, busy, flat[-1][node], level.after))
        best = np.full(len(node), INFINITY)
        for low, own in zip(self.classes.low, flat, strict=True):
            # One class at a time: gathering all at once takes five times as long.
            whole = own[node]
            whole += np.maximum(low, added)
            np.minimum(best, whole, out=best)
        return best

    def by_class(self, starts: Mapping[int, Array]) -> Array:
        """[C] bounds of all templates that add as much as a class."""
        low = self.classes.low
        found = np.full(len(low), INFINITY)
        for p, nodes in starts.items():
            found = np.minimum(found, self.table[p][:, 0, nodes].min(axis=1) + low)
        return np.minimum(found, INFINITY)

    def pruned(self, starts: Mapping[int, Array], cutoff: int) -> list[Level]:
        """The levels without stages whose templates are not below `cutoff`.

        What comes before a stage costs at least the latency of the stages before it that add no
        more than the class allows.
        """
        kept, low = list[Level](), self.classes.low[:, None]
        lead = np.full((len(low), self.table[-1].shape[2]), INFINITY)
        for level, rest in zip(reversed(self.levels), reversed(self.table[:-1]), strict=True):
            lead[:, starts.get(level.after + 1, _NONE)] = 0
            own = self.classes.slow_class(level.longer)
            added = self.terms.alone(level.work, level.longer, np.array(level.after))
            through = lead[:, level.source] + level.latency
            through[added > self.classes.high[:, None]] = INFINITY
            whole = through + rest[:, own, level.target] + low
            keep = whole.min(axis=0) < cutoff
            kept.append(level.take(keep))
            lead = kept[-1].into_targets(through[:, keep], rest.shape[2])
        return kept[::-1]
