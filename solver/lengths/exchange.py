"""Exchanges of two sequences, or of one with free room, that end the slowest replica sooner."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.lengths.dispatch import Dispatch
from formulations.lengths.problem import Replica

Ints = NDArray[np.int64]

#: Replicas that end soonest, with which the slowest one exchanges.
OTHERS = 4
#: Pairs of sequences compared at once.
MOST_PAIRS = 1 << 20
NEVER = np.iinfo(np.int64).max


class Exchange:
    """A dispatch in arrays: [sequence], [row], [replica]; times in ns."""

    def __init__(
        self, replicas: Sequence[Replica], lengths: Sequence[int], times: Ints, packed: bool
    ) -> None:
        """times: what every sequence adds to a row of every replica, ns, [replica, sequence]."""
        self._lengths, self._times, self._packed = np.array(lengths), times, packed
        self._fixed = np.array([one.time.per_row_ns for one in replicas])
        self._further = np.array([one.stages - 1 for one in replicas])
        self._room = np.array([one.longest_row for one in replicas])

    def start(self, dispatch: Dispatch) -> None:
        """Go on from this dispatch, with one free row more on every replica."""
        rows = [row for own in dispatch.rows for row in (*own, ())]
        self._replica = np.repeat(
            np.arange(len(dispatch.rows)), [len(own) + 1 for own in dispatch.rows]
        )
        self._row = np.empty(len(self._lengths), dtype=np.int64)
        for j, row in enumerate(rows):
            self._row[list(row)] = j
        self._measure()

    @property
    def time_ns(self) -> int:
        """Time of the slowest replica."""
        return int(self._total.max())

    @property
    def dispatch(self) -> Dispatch:
        """Rows of every replica, free ones left out."""
        rows = [tuple(np.flatnonzero(self._row == j).tolist()) for j in range(len(self._replica))]
        return Dispatch(
            tuple(
                tuple(rows[j] for j in np.flatnonzero(self._replica == r) if rows[j])
                for r in range(len(self._room))
            )
        )

    def _measure(self) -> None:
        """Tokens and times of rows, the three longest of each replica, and its time."""
        count = len(self._replica)
        own = self._times[self._replica[self._row], np.arange(len(self._row))]
        self._held = np.bincount(self._row, minlength=count)
        self._tokens = _sums(self._row, self._lengths, count)
        self._time = _sums(self._row, own, count) + self._fixed[self._replica] * (self._held > 0)
        ranked = np.lexsort((-self._time, self._replica))
        first = np.searchsorted(self._replica, np.arange(len(self._room)))
        last = np.append(first[1:], count) - 1
        self._slowest = [ranked[np.minimum(first + place, last)] for place in range(3)]
        self._rows = _sums(self._replica, self._time, len(self._room))
        self._total = self._rows + self._further * self._time[self._slowest[0]]

    def improve(self) -> bool:
        """Make the best exchange of the slowest replica; whether one ends it sooner."""
        slow = int(self._total.argmax())
        near = self._total <= np.sort(self._total)[:OTHERS].max()
        near[slow] = True
        ours = np.flatnonzero(self._replica[self._row] == slow)
        theirs = np.flatnonzero(near[self._replica[self._row]])
        free = np.flatnonzero(near[self._replica] & (self._packed | (self._held == 0)))
        ours = ours[:: 1 + len(ours) * (len(theirs) + len(free)) // MOST_PAIRS]
        sequences = np.append(theirs, np.full(len(free), -1))
        ends = self._ends(slow, ours, sequences, np.append(self._row[theirs], free))
        best = int(ends.argmin())
        if ends.flat[best] >= self._total[slow]:
            return False
        i, j = divmod(best, len(sequences))
        if j < len(theirs):
            both = [ours[i], theirs[j]]
            self._row[both] = self._row[both[::-1]]
            self._measure()
        else:
            row = free[j - len(theirs)]
            self._row[ours[i]] = row
            if self._held[row]:
                self._measure()
            else:
                self.start(self.dispatch)
        return True

    def _ends(self, slow: int, ours: Ints, theirs: Ints, there: Ints) -> Ints:
        """When the later of two replicas ends after each exchange, ns, [ours, theirs].

        theirs: sequences in rows `there`, or -1 for free room in them.
        """
        a, b, other = self._row[ours][:, None], there[None, :], self._replica[there][None, :]
        some, i = theirs >= 0, ours[:, None]
        tokens = self._lengths[i] - np.where(some, self._lengths[theirs], 0)
        fits = (self._tokens[a] - tokens <= self._room[slow]) & (a != b)
        fits &= self._tokens[b] + tokens <= self._room[other]
        leaves = np.where(some, self._times[self._replica[there], theirs], 0)
        comes = np.where(some, self._times[slow, theirs], -self._fixed[slow] * (self._held[a] == 1))
        new_a = self._time[a] - self._times[slow, i] + comes
        new_b = self._time[b] - leaves + self._times[other, i]
        new_b = new_b + self._fixed[other] * (self._held[b] == 0)
        same = other == slow
        grown = np.where(same, new_b, 0)  # a row of our own, if the exchange is between two
        change = new_a - self._time[a] + np.where(same, new_b - self._time[b], 0)
        sooner = self._with(np.array(slow), a, b, change, np.maximum(new_a, grown))
        later = self._with(other, a, b, new_b - self._time[b], new_b)
        ends = np.where(same, sooner, np.maximum(sooner, later))
        return np.where(fits, ends, NEVER)

    def _with(self, replica: Ints, a: Ints, b: Ints, change: Ints, longest: Ints) -> Ints:
        """Time of a replica whose rows a and b change so much and become no longer, ns."""
        longest_left: Ints = np.zeros((1, 1), dtype=np.int64)
        for slowest in reversed(self._slowest):
            row = slowest[replica]
            longest_left = np.where((row == a) | (row == b), longest_left, self._time[row])
        drain = self._further[replica] * np.maximum(longest_left, longest)
        total: Ints = self._rows[replica] + change + drain
        return total


def _sums(groups: Ints, values: Ints, count: int) -> Ints:
    """Sums of values by their group, [count]."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, groups, values)
    return sums
