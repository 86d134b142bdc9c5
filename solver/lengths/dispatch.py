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

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np

from formulations.costs.intervals import Array, Numbers
from formulations.errors import PlannerError
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Mixed, Replica, Strategy
from formulations.lengths.tour import Group

#: Sequences of one row, as indices into the step's lengths.
Row = tuple[int, ...]
#: Rows of every replica, [replica][row]; a padded row holds one sequence.
Dispatch = tuple[tuple[Row, ...], ...]

#: Lengths of the longest row that are tried, beginning with the longest sequence's.
ROW_LENGTHS = 8
#: Groups of more sequences are not dealt out: it takes seconds, and shares are exact there.
MAX_SEQUENCES = 10_000
#: The bisection ends at this share of the time.
PRECISION = 1e-4
#: Relative room for the rounding of doubles in sums of thousands of times.
ROUNDING = 1e-9


def row_ns(replica: Replica, tokens: Iterable[int]) -> int:
    """Time of a row that holds sequences of so many tokens on the replica's slowest stage, ns."""
    return sum(replica.time.sequence_ns(length) for length in tokens) + replica.time.per_row_ns


def pipeline_ns(stages: int, rows: Sequence[int]) -> int:
    """Time of a replica that runs rows of these times one after another, ns (PROBLEM section 8).

    The rows and, while the pipeline fills and drains, its longest row once per further stage.
    """
    return sum(rows) + (stages - 1) * max(rows, default=0)


def dispatch_ns(strategy: Strategy, lengths: Sequence[int], dispatch: Dispatch) -> int:
    """Time until the last replica has run its rows, ns."""
    return max(
        pipeline_ns(replica.stages, [row_ns(replica, (lengths[i] for i in row)) for row in rows])
        for replica, rows in zip(strategy.pipelines, dispatch, strict=True)
    )


@dataclass(frozen=True)
class Dispatched:
    """A dispatch, its time and the time that no dispatch beats, ns."""

    dispatch: Dispatch
    time_ns: int
    bound_ns: int


def dispatch_group(mixed: Mixed, group: Group) -> Dispatched | None:
    """A group of a step dealt out; None of a measured strategy, and of very many sequences."""
    strategy = mixed.strategies[group.strategy]
    atoms = [mixed.atoms[k] for k in group.atoms]
    if strategy.atoms_ns or sum(atom.count for atom in atoms) > MAX_SEQUENCES:
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
    bound_ns = min(
        pipeline_ns(replica.stages, [row_ns(replica, [max(lengths)])])
        for replica in strategy.replicas
        if max(lengths) <= replica.longest_row
    )
    for shared in (True, False):
        fractions = _Fractions(strategy, descending, rows, shared)
        # The least time within which all can be done
        times = range(bound_ns, above)
        bound_ns += bisect_left(times, True, key=fractions.end_within)
    return bound_ns


class _Fractions:
    """Whether all sequences, longest first and in fractions, can be done within a time: (3).

    shared: with their shares of a row's fixed time, by (1); else without, by (1) and (2).
    """

    def __init__(self, strategy: Strategy, lengths: Array, rows: Rows, shared: bool) -> None:
        self._shared = shared
        counts = {k: n for k, n in strategy.kinds.items() if k.longest_row >= lengths[-1]}
        self._kinds = list(counts)
        self._alone, works = list[Numbers](), list[Numbers]()
        for kind in counts:
            work = np.array([kind.time.sequence_ns(n) for n in lengths.tolist()], dtype=float)
            self._alone.append(work + kind.time.per_row_ns)  # [n] a row of each sequence, w + c
            if shared:
                share = lengths / kind.longest_row if rows == "packed" else 1.0
                work = work + kind.time.per_row_ns * share
            works.append(work)
        reference = np.maximum(works[0], 1.0)
        self._done = np.concatenate([[0.0], np.cumsum(reference)])  # of the k longest
        self._speeds = [  # v
            float((reference / np.maximum(work, 1.0))[lengths <= kind.longest_row].max())
            for work, kind in zip(works, counts, strict=True)
        ]
        self._first = [int((lengths > kind.longest_row).sum()) for kind in counts]
        self._states = list(product(*(range(number + 1) for number in counts.values())))

    def end_within(self, time_ns: int) -> bool:
        """Work done by every number of full replicas of each kind, from none to all."""
        within_ns = time_ns * (1 + ROUNDING)
        reached = {self._states[0]: 0.0}
        for state in self._states[1:]:
            reached[state] = max(
                self._filled(reached[before], kind, within_ns)
                for kind, number in enumerate(state)
                if number
                for before in [(*state[:kind], number - 1, *state[kind + 1 :])]
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


class _Filler:
    """Fills the replicas of a strategy within a time, the roomiest and fastest first."""

    def __init__(self, strategy: Strategy, lengths: Sequence[int], rows: Rows) -> None:
        self._replicas, self._lengths, self._packed = strategy.pipelines, lengths, rows == "packed"
        self._ascending = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
        self._times_ns = {
            replica: [replica.time.sequence_ns(length) for length in lengths]
            for replica in self._replicas
        }
        # Replicas with long rows first, then those that take least for all sequences
        ranks = [(-replica.longest_row, sum(self._times_ns[replica])) for replica in self._replicas]
        self._order = sorted(range(len(ranks)), key=ranks.__getitem__)

    def within(self, within_ns: int) -> Dispatch | None:
        """Replicas that all end within a time; None if that leaves sequences over."""
        rows: list[list[Row]] = [[] for _ in self._replicas]
        waiting = self._ascending
        for r in self._order:
            rows[r] = self._fill(self._replicas[r], waiting, within_ns)
            taken = {i for row in rows[r] for i in row}
            waiting = [i for i in waiting if i not in taken]
        return None if waiting else tuple(map(tuple, rows))

    def _fill(self, replica: Replica, waiting: Sequence[int], within_ns: int) -> list[Row]:
        """The rows of most work that the replica ends in time, over several longest rows."""
        times_ns = self._times_ns[replica]
        fitting = [i for i in waiting if self._lengths[i] <= replica.longest_row]
        if not fitting:
            return []
        caps = {within_ns}
        if self._packed and replica.stages > 1:
            # n rows of equal length end in time if none takes more than T / (n + p - 1)
            alone = max(1, times_ns[fitting[-1]] + replica.time.per_row_ns)
            numbers = range(1, max(1, within_ns // alone) + 1)
            chosen = {numbers[len(numbers) * k // ROW_LENGTHS] for k in range(ROW_LENGTHS)}
            caps = {max(alone, within_ns // (n + replica.stages - 1)) for n in chosen}
        fillings = [self._rows(replica, waiting, within_ns, cap) for cap in sorted(caps)]
        return max(fillings, key=lambda rows: sum(times_ns[i] for row in rows for i in row))

    def _rows(
        self, replica: Replica, waiting: Sequence[int], within_ns: int, longest_ns: int
    ) -> list[Row]:
        """Rows one after another, each full before the next begins; padded, one sequence each.

        None takes more than `longest_ns`, and the replica ends within a time. Every sequence is the
        longest that has room.
        """
        pending, further = list(waiting), replica.stages - 1
        tokens = [self._lengths[i] for i in pending]
        times_ns = [self._times_ns[replica][i] for i in pending]
        rows, done_ns, slowest_ns = list[Row](), 0, 0
        while True:
            row, row_time_ns, room = list[int](), replica.time.per_row_ns, replica.longest_row
            while self._packed or not row:
                ends_ns = within_ns - done_ns - row_time_ns
                room_ns = min(
                    longest_ns - row_time_ns,
                    ends_ns - further * slowest_ns,
                    (ends_ns - further * row_time_ns) // (further + 1),  # as the slowest row
                )
                at = min(bisect_right(times_ns, room_ns), bisect_right(tokens, room)) - 1
                if at < 0:
                    break
                row.append(pending.pop(at))
                room -= tokens.pop(at)
                row_time_ns += times_ns.pop(at)
                slowest_ns = max(slowest_ns, row_time_ns)
            if not row:
                return rows
            rows.append(tuple(row))
            done_ns += row_time_ns
