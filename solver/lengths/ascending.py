"""The best step in ascending order of lengths, for every anchor at once: dynamic programming.

With C[q, i, j] the time of strategy q for atoms i .. j - 1 and a visit, and F[r, j, q] the least
time in which atoms 0 .. j - 1 are done from anchor r on, q last:

    F[r, j, q] = min(out[r, q] + C[q, 0, j], min over i < j of G[r, i, q] + C[q, i, j]),
    G[r, i, q] = min over q' != q of F[r, i, q'] + between[q', q].

A step ends by `back`, with all atoms done by others than the anchor, or with the anchor running the
longest ones itself, which then moves gradients alone: min over i, q of F[r, i, q] + back[q, r] +
C[r, i, K]; or the anchor runs them all, without a switch; each time with what anchor r takes once.
O(R K (K Q + Q^2)) for R anchors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.lengths.problem import Mixed, Switching
from formulations.lengths.strategy_time import NEVER, Numbers, strategy_times
from formulations.lengths.tour import Group, Tour, back_ns, between_ns, out_ns


@dataclass(frozen=True)
class Switches:
    """The switches as arrays, NEVER where there is none; [anchor, first], [from, to] and so on."""

    out: Numbers
    between: Numbers
    back: Numbers  #: [last, anchor]

    @classmethod
    def of(cls, switching: Switching) -> "Switches":
        """Those of a problem; nothing goes between a strategy and itself."""
        between = _matrix(switching, between_ns)
        np.fill_diagonal(between, NEVER)
        return cls(_matrix(switching, out_ns), between, _matrix(switching, back_ns))


def _matrix(switching: Switching, entry: Callable[[Switching, int, int], int | None]) -> Numbers:
    known = range(len(switching.parameters_ns))
    rows = [[entry(switching, a, b) for b in known] for a in known]
    return np.array([[NEVER if ns is None else ns for ns in row] for row in rows], dtype=np.int64)


def ascending(mixed: Mixed) -> Tour | None:
    """A step of least time in ascending order; None if there is none."""
    intervals = np.array([times.of_intervals() for times in strategy_times(mixed)])
    switches = Switches.of(mixed.switching)
    return _Search(intervals, switches).best([one.anchor_ns for one in mixed.strategies])


class _Search:
    """least: F, [anchor, atoms done, strategy]. begun: atoms done before its last group."""

    def __init__(self, intervals: Numbers, switches: Switches) -> None:
        self._intervals, self._switches = intervals, switches
        count, size = intervals.shape[0], intervals.shape[1]
        self._least = np.full((count, size, count), NEVER)
        self._begun = np.zeros((count, size, count), dtype=np.int64)
        before = np.full((count, size, count), NEVER)  # G, and out where nothing is done
        before[:, 0] = switches.out
        for done in range(1, size):
            whole = before[:, :done] + intervals[:, :done, done].T
            self._begun[:, done] = whole.argmin(axis=1)
            self._least[:, done] = np.minimum(whole.min(axis=1), NEVER)
            ways = self._least[:, done, :, None] + switches.between
            before[:, done] = np.minimum(ways.min(axis=1), NEVER)

    def best(self, once_ns: Sequence[int]) -> Tour | None:
        """The best of all anchors, which take so much once, and ends.

        One strategy alone, if that is as good.
        """
        alone = (self._intervals[:, 0, -1] + np.array(once_ns)).tolist()
        least = min(NEVER, *alone)
        tours = [self._tour(q, 0, q) for q, ns in enumerate(alone) if ns == least < NEVER][:1]
        for anchor in range(len(self._intervals)):
            by_itself = self._intervals[anchor, :, -1].copy()
            by_itself[-1] = 0
            ways = self._least[anchor] + self._switches.back[:, anchor] + by_itself[:, None]
            ways += once_ns[anchor]
            # Where the anchor runs the end, what ran before is another strategy.
            ways[:-1, anchor] = NEVER
            done, last = np.unravel_index(ways.argmin(), ways.shape)
            if ways[done, last] < least:
                least = int(ways[done, last])
                tours.append(self._tour(anchor, int(done), int(last)))
        return tours[-1] if tours else None

    def _tour(self, anchor: int, done: int, last: int) -> Tour:
        """The groups, from the end to the start."""
        size = self._intervals.shape[1] - 1
        groups = [Group(anchor, tuple(range(done, size)))] if done < size else []
        while done:
            first = int(self._begun[anchor, done, last])
            groups.append(Group(last, tuple(range(first, done))))
            if first:
                ways = self._least[anchor, first] + self._switches.between[:, last]
                last = int(ways.argmin())
            done = first
        return Tour(anchor, tuple(reversed(groups)))
