"""Dispatch of one step's sequences to rows and replicas: one heuristic, and a bound on its time.

Heuristic. As MULTIFIT fills machines (Coffman, Garey, Johnson 1978): for a time T the replicas are
filled one after another, each with the longest sequences left while it ends within T; the least T
that leaves none over is found by bisection. Machines have rows here, and a pipeline also waits for
its longest row, so each replica is filled for several lengths of its longest row.

Bound. A replica of p stages whose longest sequence takes w runs n rows, of fixed time c and work W
together, within T only if W + n c + (p - 1) max(w + c, W / n + c) <= T. So

    W + n c <= T - (p - 1) (w + c)                                                        (1)
    W <= (sqrt(T) - sqrt((p - 1) c))^2, the most over all real n (arithmetic and geometric mean) (2)

and n rows hold no more tokens than n of the longest row: with its share of c, a sequence of l
tokens in rows of L takes c l / L more, and (1) is about W alone. Let replicas be in the order of
their longest sequences: before each, all longer ones are done by those before it. So filling each
up to its cap with the longest sequences left, fractions allowed, gets at least as far (3): a
dynamic program over how many replicas of each kind are full. Times of unlike replicas become those
of one reference, v of which a replica does per ns at most.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from formulations.errors import PlannerError
from formulations.lengths.dispatch import Dispatch, dispatch_ns, pipeline_ns, row_ns
from formulations.lengths.problem import Mixed, Replica, Rows, Strategy
from formulations.lengths.tour import Group

Numbers = NDArray[np.int64]

#: Lengths of the longest row that are tried, beginning with the longest sequence's.
ROW_LENGTHS = 8
#: Groups of more sequences are not dealt out: it takes seconds, and shares are exact there.
MAX_SEQUENCES = 10_000
#: The bisection ends at this share of the time.
PRECISION = 1e-4
#: Relative room for the rounding of doubles in sums of thousands of times.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Dispatched:
    """A dispatch, its time and the time that no dispatch beats, ns."""

    dispatch: Dispatch
    time_ns: int
    bound_ns: int

    @property
    def gap(self) -> float:
        """By which share of its time the dispatch may be beaten at most."""
        return 1 - self.bound_ns / self.time_ns if self.time_ns else 0.0


def dispatch_group(mixed: Mixed, group: Group) -> Dispatched | None:
    """A group of a step dealt out; None of a measured strategy, and of very many sequences."""
    strategy = mixed.strategies[group.strategy]
    atoms = [mixed.atoms[k] for k in group.atoms]
    if not isinstance(strategy, Strategy) or sum(atom.count for atom in atoms) > MAX_SEQUENCES:
        return None
    lengths = [atom.tokens for atom in atoms for _ in range(atom.count)]
    return dispatch(strategy, lengths, mixed.rows)


def dispatch(strategy: Strategy, lengths: Sequence[int], rows: Rows) -> Dispatched:
    """A dispatch of all sequences, and the bound that the module proves.

    lengths: tokens of every sequence of the step, at least one. Padded rows hold one sequence each,
    of the length that is given: pad before. Raises PlannerError for one that fits no replica.
    """
    longest_row = max(replica.longest_row for replica in strategy.replicas)
    if max(lengths) > longest_row:
        raise PlannerError(
            f"a sequence of {max(lengths)} tokens; strategy {strategy.name} takes {longest_row}"
        )
    filler = _Filler(strategy, lengths, rows)
    low, high = 0, 1
    while (best := filler.within(high)) is None:
        low, high = high, 2 * high
    best_ns = dispatch_ns(strategy, lengths, best)
    bound_ns = least_dispatch_ns(strategy, lengths, rows, best_ns)
    low = max(low, bound_ns)
    while best_ns - low > PRECISION * best_ns:
        middle = (low + best_ns) // 2
        filled = filler.within(middle)
        if filled is None:
            low = middle + 1
        else:
            best, best_ns = filled, dispatch_ns(strategy, lengths, filled)
    return Dispatched(best, best_ns, bound_ns)


def least_dispatch_ns(strategy: Strategy, lengths: Sequence[int], rows: Rows, above: int) -> int:
    """A time that no dispatch of the sequences beats, ns; `above`: the time of one, ns."""
    descending = np.sort(np.array(lengths, dtype=np.int64))[::-1]
    longest = [
        pipeline_ns(replica.stages, [row_ns(replica, [max(lengths)])])
        for replica in strategy.replicas
        if max(lengths) <= replica.longest_row
    ]
    bound_ns = min(longest)
    for shared in (True, False):
        fractions = _Fractions(strategy, descending, rows, shared)
        low, high = bound_ns, above
        while low < high:
            middle = (low + high) // 2
            if fractions.end_within(middle * (1 + ROUNDING)):
                high = middle
            else:
                low = middle + 1
        bound_ns = low
    return bound_ns


class _Fractions:
    """Whether all sequences, longest first and in fractions, can be done within a time: (3).

    shared: with their shares of a row's fixed time, by (1); else without, by (1) and (2).
    """

    def __init__(self, strategy: Strategy, lengths: Numbers, rows: Rows, shared: bool) -> None:
        self._shared = shared
        kinds = Counter(one for one in strategy.replicas if one.longest_row >= lengths[-1])
        self._kinds = list(kinds)
        work = [
            np.array([kind.time.sequence_ns(int(length)) for length in lengths], dtype=float)
            for kind in kinds
        ]
        #: [kind][n] a row of each sequence alone, w + c
        self._alone = [w + kind.time.per_row_ns for w, kind in zip(work, kinds, strict=True)]
        if shared:
            work = [
                w + kind.time.per_row_ns * (lengths / kind.longest_row if rows == "packed" else 1.0)
                for w, kind in zip(work, kinds, strict=True)
            ]
        reference = np.maximum(work[0], 1.0)
        self._done = np.concatenate([[0.0], np.cumsum(reference)])  # of the k longest
        self._speeds = [  # v
            float((reference / np.maximum(w, 1.0))[lengths <= kind.longest_row].max())
            for w, kind in zip(work, kinds, strict=True)
        ]
        self._first = [int((lengths > kind.longest_row).sum()) for kind in kinds]
        self._states = list(product(*(range(number + 1) for number in kinds.values())))

    def end_within(self, time_ns: float) -> bool:
        """Work done by every number of full replicas of each kind, from none to all."""
        reached = {self._states[0]: 0.0}
        for state in self._states[1:]:
            reached[state] = max(
                self._filled(reached[tuple(before)], kind, time_ns)
                for kind, number in enumerate(state)
                if number
                for before in [[*state[:kind], number - 1, *state[kind + 1 :]]]
            )
        return reached[self._states[-1]] >= float(self._done[-1]) * (1 - ROUNDING)

    def _filled(self, done: float, kind: int, time_ns: float) -> float:
        """Reference work done with one more replica of a kind, which begins with the longest."""
        longest = int(np.searchsorted(self._done, done * (1 + ROUNDING), side="right")) - 1
        if not self._first[kind] <= longest < len(self._done) - 1:
            return done
        replica = self._kinds[kind]
        further, fixed = replica.stages - 1, replica.time.per_row_ns
        cap_ns = time_ns - further * float(self._alone[kind][longest])  # (1)
        if not self._shared:
            root = max(0.0, sqrt(time_ns) - sqrt(further * fixed))
            cap_ns = min(cap_ns - fixed, root * root)  # (2)
        return done + max(0.0, cap_ns) * self._speeds[kind]


@dataclass(frozen=True)
class _Waiting:
    """Sequences by ascending length: indices, tokens, and their times on a replica, ns."""

    indices: list[int]
    tokens: list[int]
    times_ns: list[int]

    def copy(self) -> "_Waiting":
        """The same, to take sequences from."""
        return _Waiting(self.indices[:], self.tokens[:], self.times_ns[:])


class _Filler:
    """Fills the replicas of a strategy within a time, the roomiest and fastest first."""

    def __init__(self, strategy: Strategy, lengths: Sequence[int], rows: Rows) -> None:
        self._replicas, self._lengths, self._packed = strategy.replicas, lengths, rows == "packed"
        self._ascending = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
        self._times_ns = {
            replica: [replica.time.sequence_ns(length) for length in lengths]
            for replica in set(strategy.replicas)
        }

    def within(self, within_ns: int) -> Dispatch | None:
        """Replicas that all end within a time; None if that leaves sequences over."""
        rows: list[list[list[int]]] = [[] for _ in self._replicas]
        indices = self._ascending
        for r in sorted(range(len(rows)), key=self._rank):
            times_ns = self._times_ns[self._replicas[r]]
            waiting = _Waiting(
                indices, [self._lengths[i] for i in indices], [times_ns[i] for i in indices]
            )
            rows[r] = self._fill(self._replicas[r], waiting, within_ns)
            taken = {i for row in rows[r] for i in row}
            indices = [i for i in indices if i not in taken]
        if indices:
            return None
        return Dispatch(tuple(tuple(map(tuple, replica_rows)) for replica_rows in rows))

    def _rank(self, r: int) -> tuple[int, int]:
        """Replicas with long rows first, then those that take least for all sequences."""
        return -self._replicas[r].longest_row, sum(self._times_ns[self._replicas[r]])

    def _fill(self, replica: Replica, waiting: _Waiting, within_ns: int) -> list[list[int]]:
        """The rows of most work that the replica ends in time, over several longest rows."""
        fitting = bisect_right(waiting.tokens, replica.longest_row)
        if not fitting:
            return []
        alone = waiting.times_ns[fitting - 1] + replica.time.per_row_ns
        caps = {within_ns}
        if self._packed and replica.stages > 1:
            # n rows of equal length end in time if none takes more than T / (n + p - 1)
            numbers = range(1, max(1, within_ns // max(alone, 1)) + 1)
            chosen = {numbers[len(numbers) * k // ROW_LENGTHS] for k in range(ROW_LENGTHS)}
            caps = {max(alone, within_ns // (n + replica.stages - 1)) for n in chosen}
        filled = [_Filling(replica, waiting.copy(), within_ns, cap) for cap in sorted(caps)]
        for filling in filled:
            filling.run(self._packed)
        best = max(filled, key=lambda filling: filling.work_ns)
        return [row.sequences for row in best.rows]


@dataclass
class _Row:
    """A row as it fills: sequences, its time in ns, and tokens that still have room."""

    time_ns: int
    room: int
    sequences: list[int] = field(default_factory=list)


@dataclass
class _Filling:
    """A replica that ends within a time while its rows fill; none takes more than `longest_ns`."""

    replica: Replica
    waiting: _Waiting
    within_ns: int
    longest_ns: int
    rows: list[_Row] = field(default_factory=list)
    done_ns: int = 0
    slowest_ns: int = 0

    @property
    def work_ns(self) -> int:
        """What the sequences take, without the fixed time of rows."""
        return self.done_ns - len(self.rows) * self.replica.time.per_row_ns

    def run(self, packed: bool) -> None:
        """Rows one after another, each full before the next begins; padded, one sequence each."""
        while self._begin():
            while packed and self._add(self.rows[-1]):
                pass

    def _begin(self) -> bool:
        """Begin a row with the longest sequence that has room; whether one has."""
        row = _Row(self.replica.time.per_row_ns, self.replica.longest_row)
        if not self._add(row):
            return False
        self.rows.append(row)
        return True

    def _add(self, row: _Row) -> bool:
        """Add the longest sequence that has room in a row; whether one has."""
        further = self.replica.stages - 1
        before_ns = self.done_ns - bool(row.sequences) * row.time_ns  # all other rows
        ends_ns = self.within_ns - before_ns - row.time_ns
        as_slowest_ns = (ends_ns - further * row.time_ns) // (further + 1)
        room_ns = min(
            self.longest_ns - row.time_ns, ends_ns - further * self.slowest_ns, as_slowest_ns
        )
        at = bisect_right(self.waiting.times_ns, room_ns)
        at = min(at, bisect_right(self.waiting.tokens, row.room)) - 1
        if at < 0:
            return False
        row.sequences.append(self.waiting.indices.pop(at))
        row.room -= self.waiting.tokens.pop(at)
        row.time_ns += self.waiting.times_ns.pop(at)
        self.done_ns = before_ns + row.time_ns
        self.slowest_ns = max(self.slowest_ns, row.time_ns)
        return True
