"""Least time of a dispatch, proved: replicas filled with the longest sequences first, in fractions.

Of a replica of p stages whose longest sequence takes w, with work W in n rows of fixed time c:

(1) its sequences' times, each with its tokens' share of a row's fixed time, + (p - 1) (w + c) <= T;
(2) W + n c + (p - 1) (c + max(w, W / n)) <= T for some real n; the best n is W / w, or if that is
    more than rows need, sqrt((p - 1) W / c), where W + n c + ... = (sqrt(W) + sqrt((p - 1) c))^2.

Both cap the work of a replica within T, the less the longer its longest sequence. If a dispatch
ends within T, then before each replica's longest sequence all longer ones are done by replicas of
longer ones, within their caps. So filling replicas one after another with the longest sequences
left, fractions allowed, gets at least as far (Hall's condition on nested sets). Of unlike replicas
the order of filling matters: a dynamic program over how many of each class are full. Their times
are replaced by multiples of one reference, which no time is below.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations.lengths.dispatch import pipeline_ns, row_ns
from formulations.lengths.problem import Replica, Rows, Strategy

Times = NDArray[np.float64]

#: Relative room for the rounding of doubles in sums of thousands of times.
ROUNDING = 1e-9


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


def _longest_alone(strategy: Strategy, longest: int) -> int:
    """Least time of the replica that has the longest sequence, ns."""
    return min(
        pipeline_ns(replica.stages, [row_ns(replica, [longest])])
        for replica in strategy.replicas
        if longest <= replica.longest_row
    )


class _Filling:
    """Whether all sequences, longest first, can be done within a time, as the module argues."""

    def __init__(self, strategy: Strategy, lengths: NDArray[np.int64], rows: Rows) -> None:
        roomy = (one for one in strategy.replicas if one.longest_row >= lengths[-1])
        members = Counter(roomy)
        reference = _times(strategy.replicas[0], lengths, rows)[1]
        self._classes = [_Class(replica, lengths, reference, rows) for replica in members]
        self._full = list(product(*(range(count + 1) for count in members.values())))
        self._done = np.concatenate([[0.0], np.cumsum(reference)])  # reference of the k longest

    def ends_within(self, within: float) -> bool:
        """Furthest work done by every number of full replicas of each class."""
        caps = [one.caps(within) for one in self._classes]
        reach = {self._full[0]: 0.0}
        for full in self._full[1:]:
            reach[full] = max(
                self._filled(reach[(*full[:c], full[c] - 1, *full[c + 1 :])], cap)
                for c, cap in enumerate(caps)
                if full[c]
            )
        return max(reach.values()) >= float(self._done[-1]) * (1 - ROUNDING)

    def _filled(self, done: float, caps: Times) -> float:
        """Work done once one more replica takes the longest sequences that are left."""
        k = int(np.searchsorted(self._done, done, side="right")) - 1
        return done + float(caps[k]) if k < len(caps) else done


class _Class:
    """Equal replicas: the reference's work that one of them does, by its longest sequence."""

    def __init__(
        self, replica: Replica, lengths: NDArray[np.int64], reference: Times, rows: Rows
    ) -> None:
        work, charged = _times(replica, lengths, rows)
        self._fits = lengths <= replica.longest_row
        self._longest = np.maximum(work, 1.0)
        self._further = replica.stages - 1
        self._fixed = float(replica.time.per_row_ns)
        self._charged = float((charged / reference)[self._fits].min())
        self._work = float((work / reference)[self._fits].min())

    def caps(self, within: float) -> Times:
        """Most reference work of a replica within a time by its longest sequence, ns, [n]."""
        left = within - self._further * (self._longest + self._fixed)  # (1)
        in_rows = left / (1 + self._fixed / self._longest)  # (2)
        spread = max(0.0, within**0.5 - (self._further * self._fixed) ** 0.5) ** 2
        even = in_rows * self._fixed > self._further * self._longest**2
        work = np.where(even, spread, in_rows)
        most = np.minimum(left / self._charged, work / self._work if self._work else np.inf)
        return np.where(self._fits, np.maximum(most, 0.0), 0.0)


def _times(replica: Replica, lengths: NDArray[np.int64], rows: Rows) -> tuple[Times, Times]:
    """Times of sequences, and the same with their shares of a row's fixed time, ns, [n] each."""
    work = np.array([replica.time.sequence_ns(int(length)) for length in lengths], dtype=float)
    share = lengths / replica.longest_row if rows == "packed" else 1.0
    return work, work + replica.time.per_row_ns * share
