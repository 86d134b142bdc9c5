"""Least time of a dispatch, proved: replicas filled with the longest sequences first, in fractions.

A replica of p stages whose longest sequence takes w does, in n rows of fixed time c within T, work

    W <= T - (n + p - 1) c - (p - 1) w  and  W (1 + (p - 1) / n) <= T - (n + p - 1) c,

for its longest row takes at least w + c, and at least W / n + c; and n rows hold no more tokens
than n of the longest row, in the sequences that take longest per token. Its cap is the most of that
over n, more if w is less. Let replicas be in the order of their longest sequences: before each, all
longer sequences are done by the replicas before it, within their caps and in their rows. So filling
replicas with the longest sequences left, fractions allowed, gets at least as far: a dynamic program
over how many replicas of each class are full, and how many rows they have, since sequences need
whole rows (Martello and Toth 1990, bound L2 of bin packing). Times of unlike replicas are replaced
by multiples of one reference, which no time is below. A padded row is a sequence, its fixed time a
part of the sequence's. Of very many rows none is counted: tokens have their share of a row's time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations.lengths.dispatch import pipeline_ns, row_ns
from formulations.lengths.problem import Replica, Rows, Strategy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Relative room for the rounding of doubles in sums of thousands of times.
ROUNDING = 1e-9
#: Sizes above which two sequences share no row, tried for the fewest rows.
THRESHOLDS = 32
#: Rows of a step that are counted whole; of more, a part of one is no matter.
MOST_ROWS = 1_000


def least_dispatch_ns(strategy: Strategy, lengths: Sequence[int], rows: Rows, above: int) -> int:
    """A time that no dispatch of the sequences beats, ns; `above`: the time of one, ns."""
    filling = _Filling(strategy, np.sort(np.array(lengths, dtype=np.int64))[::-1], rows)
    low, high = _longest_alone(strategy, max(lengths)), above
    while low < high:
        middle = (low + high) // 2
        if filling.ends_within(middle * (1 + ROUNDING)):
            high = middle
        else:
            low = middle + 1
    return low


def fewest_rows(lengths: Ints, longest_row: int) -> Ints:
    """Rows without which the k first sequences have no room, [k], k from 0; lengths descend."""
    small = np.unique(lengths[2 * lengths <= longest_row])
    sizes = small[np.linspace(0, len(small) - 1, min(len(small), THRESHOLDS), dtype=np.int64)]
    fewest = np.zeros(len(lengths) + 1, dtype=np.int64)
    for size in (0, *sizes.tolist()):
        alone = lengths > longest_row - size
        large = ~alone & (2 * lengths > longest_row)
        held = np.where(~alone & (lengths >= size), lengths, 0)
        over = _summed(held) - _summed(large) * longest_row  # what rows of large ones have no room
        rows = _summed(alone) + _summed(large) + np.maximum(-(-over // longest_row), 0)
        fewest = np.maximum(fewest, rows)
    return fewest


def _summed(values: NDArray[np.generic]) -> Ints:
    """Sums of the k first values, [k], k from 0."""
    sums: Ints = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return sums


def _longest_alone(strategy: Strategy, longest: int) -> int:
    """Least time of the replica that has the longest sequence, ns."""
    return min(
        pipeline_ns(replica.stages, [row_ns(replica, [longest])])
        for replica in strategy.replicas
        if longest <= replica.longest_row
    )


class _Filling:
    """Whether all sequences, longest first, can be done within a time, as the module argues."""

    def __init__(self, strategy: Strategy, lengths: Ints, rows: Rows) -> None:
        roomy = [one for one in strategy.replicas if one.longest_row >= lengths[-1]]
        needed = np.zeros(len(lengths) + 1, dtype=np.int64)
        longest_row = max(one.longest_row for one in roomy)
        if whole := rows == "packed" and lengths.sum() <= MOST_ROWS * longest_row:
            needed = fewest_rows(lengths, longest_row)
        reference = np.maximum(_times(roomy[0], lengths, rows, whole), 1.0)
        members = Counter(roomy)
        self._full = list(product(*(range(count + 1) for count in members.values())))
        self._done = np.concatenate([[0.0], np.cumsum(reference)])  # reference of the k longest
        self._rows = np.arange(needed[-1] + 1)  # the last one: so many or more
        self._held = np.searchsorted(needed, self._rows, side="right") - 1  # sequences, by rows
        densest = _Densest(lengths, reference)
        self._most = densest.work(self._rows * longest_row)
        self._most[-1] = self._done[-1]
        self._classes = [
            _Class(one, lengths, _times(one, lengths, rows, whole), reference, whole, densest)
            for one in members
        ]

    def ends_within(self, within: float) -> bool:
        """Furthest work done by every number of full replicas of each class, by their rows."""
        nothing = np.full(len(self._rows), -np.inf)
        nothing[0] = 0.0
        reach: dict[tuple[int, ...], Floats] = {self._full[0]: nothing}
        for full in self._full[1:]:
            reach[full] = np.max(self._filled(reach, full, within), axis=0)
        return float(reach[self._full[-1]][-1]) >= float(self._done[-1]) * (1 - ROUNDING)

    def _filled(
        self, reach: Mapping[tuple[int, ...], Floats], full: tuple[int, ...], within: float
    ) -> list[Floats]:
        """Work done with one more replica of a class, by which class that is."""
        return [
            self._with_one(one, reach[(*full[:c], full[c] - 1, *full[c + 1 :])], within)
            for c, one in enumerate(self._classes)
            if full[c]
        ]

    def _with_one(self, one: "_Class", done: Floats, within: float) -> Floats:
        """Work done by rows once one more replica takes the longest sequences that are left."""
        k = np.searchsorted(self._done, done * (1 + ROUNDING), side="right") - 1
        caps = one.caps(within, np.minimum(k, self._held), len(self._rows) - 1)
        furthest = done.copy()
        rows = np.minimum(self._rows[:, None] + np.arange(1, caps.shape[1] + 1), self._rows[-1])
        np.maximum.at(furthest, rows, done[:, None] + caps)
        return np.minimum(furthest, self._most)


class _Densest:
    """Most work that tokens hold: fractions of the sequences that take longest per token."""

    def __init__(self, lengths: Ints, reference: Floats) -> None:
        order = np.argsort(-reference / lengths)
        self._tokens = _summed(lengths[order])
        self._done = np.concatenate([[0.0], np.cumsum(reference[order])])

    def work(self, tokens: Ints) -> Floats:
        """Work by tokens, ns."""
        most: Floats = np.interp(tokens, self._tokens, self._done)
        return most


class _Class:
    """Equal replicas: the reference's work that one of them does, by its longest sequence."""

    def __init__(
        self,
        replica: Replica,
        lengths: Ints,
        work: Floats,
        reference: Floats,
        whole: bool,
        densest: _Densest,
    ) -> None:
        self._first = int(np.argmax(lengths <= replica.longest_row))  # the longest that fits
        self._longest = np.append(np.minimum.accumulate(work), np.inf)  # or a longer one's, if less
        self._share = max(float((work / reference)[self._first :].min()), 1e-100)
        self._further = replica.stages - 1
        self._fixed = float(replica.time.per_row_ns) if whole else 0.0
        tokens = replica.longest_row if whole else int(lengths.sum())  # of a row
        self._enough = -(-int(lengths.sum()) // tokens)  # rows for all tokens
        self._held = densest.work(np.arange(1, len(lengths) + 1) * tokens)  # by rows

    def caps(self, within: float, k: Ints, fewest: int) -> Floats:
        """Most reference work of a replica within a time, ns, [state][rows - 1], rows from 1.

        k: the longest sequence left in each state; -inf where so many rows do not hold it.
        """
        longest = np.where(k >= self._first, self._longest[k], np.inf)[:, None]
        n = np.arange(1, self._most_rows(within, float(longest.min()), fewest) + 1)
        left = within - (n + self._further) * self._fixed
        alone = np.full(longest.shape, 0.0) if not self._further else self._further * longest
        work = np.minimum(left - alone, n * left / (n + self._further))
        held = np.minimum(work / self._share, self._held[: len(n)])
        return np.where(work >= longest * (1 - ROUNDING), held, -np.inf)

    def _most_rows(self, within: float, longest: float, fewest: int) -> int:
        """Rows beyond which a replica does less: sqrt((p - 1) T / c) - p + 1, or T / (w + c)."""
        if not np.isfinite(longest):
            return 0
        best = within / max(longest + self._fixed, 1.0) if self._further else 0.0
        if self._fixed:
            best = min(best, (self._further * within / self._fixed) ** 0.5)
        return min(max(fewest, self._enough, int(best) + 1), len(self._longest) - 1)


def _times(replica: Replica, lengths: Ints, rows: Rows, whole: bool) -> Floats:
    """What sequences add to a replica's time, ns, [n]; with a row's fixed time, if not counted."""
    work = np.array([replica.time.sequence_ns(int(length)) for length in lengths], dtype=float)
    if whole:
        return work
    share = 1.0 if rows == "padded" else lengths / replica.longest_row
    return work + replica.time.per_row_ns * share
