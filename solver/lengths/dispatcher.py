"""Sequences of a step to rows and replicas, so that the slowest replica ends first.

Replicas by MULTIFIT (Coffman, Garey, Johnson 1978): for a time T, first fit of ever shorter
sequences, bisected over T. Rows by longest processing time first, as many as suit the replica.
Then sequences leave the slowest replica, or change places with shorter ones, while that helps.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace, nsmallest
from time import monotonic

from formulations.lengths.dispatch import Dispatch, Row, pipeline_ns
from formulations.lengths.problem import Rows, Strategy
from formulations.units import ceil_div

#: Exchanges tried between the slowest replica and another before they are left as they are.
TRIALS = 12

Packed = tuple[tuple[Row, ...], int]  #: rows of a replica, and its time in ns


class Dispatcher:
    """Deals the sequences of one step to the replicas of a strategy; every one must fit one."""

    def __init__(self, strategy: Strategy, lengths: Sequence[int], rows: Rows) -> None:
        self._lengths = lengths
        self._replicas = strategy.replicas
        self._packed = rows == "packed"
        times = {
            replica: [replica.time.sequence_ns(length) for length in lengths]
            for replica in set(strategy.replicas)
        }
        self._times = [times[replica] for replica in strategy.replicas]  # ns, [replica][sequence]
        self._longest_first = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))

        self._best = [self._pack(r, own) for r, own in enumerate(self._multifit())]

    @property
    def time_ns(self) -> int:
        """Time of the best dispatch so far, ns."""
        return max(time for _, time in self._best)

    @property
    def dispatch(self) -> Dispatch:
        """The best dispatch so far."""
        return Dispatch(tuple(rows for rows, _ in self._best))

    def improve(self, enough_ns: int, until: float) -> None:
        """Exchange sequences until none helps, it is quick enough, or the clock says `until`."""
        while self.time_ns > enough_ns and monotonic() < until and self._exchange(self._best):
            pass

    def _multifit(self) -> list[list[int]]:
        """Sequences of every replica; the roomiest and fastest replicas are filled first."""
        order = sorted(
            range(len(self._replicas)),
            key=lambda r: (-self._replicas[r].longest_row, sum(self._times[r])),
        )
        low, high = 0, max(map(sum, self._times)) + 1
        while (dealt := self._first_fit(order, high)) is None:
            low, high = high, 2 * high
        while low < high * (1 - 1e-6):
            middle = (low + high) // 2
            tried = self._first_fit(order, middle)
            if tried is None:
                low = middle + 1
            else:
                dealt, high = tried, middle
        return dealt

    def _first_fit(self, order: Sequence[int], within: int) -> list[list[int]] | None:
        """Every sequence to the first replica that still ends in time; None if some fits none."""
        left: dict[int, float] = {}
        dealt: list[list[int]] = [[] for _ in order]
        for i in self._longest_first:
            for r in order:
                replica, time = self._replicas[r], self._times[r][i]
                if not self._fits(r, i):
                    continue
                share = self._lengths[i] / replica.longest_row if self._packed else 1
                charged = time + replica.time.per_row_ns * share
                room = left.get(r, self._room(r, i, within))
                if charged <= room:
                    left[r] = room - charged
                    dealt[r].append(i)
                    break
            else:
                return None
        return dealt

    def _room(self, r: int, longest: int, within: int) -> float:
        """Work that replica r does in time if this is its longest sequence (`dispatch_bound`)."""
        fixed, further = self._replicas[r].time.per_row_ns, self._replicas[r].stages - 1
        time = max(1, self._times[r][longest])
        left: float = within - further * (time + fixed)
        if not self._packed:
            return left
        in_rows = left / (1 + fixed / time)
        if in_rows * fixed <= further * time**2:
            return in_rows
        spread = max(0.0, math.sqrt(within) - math.sqrt(further * fixed))
        return min(left, spread**2)

    def _pack(self, r: int, sequences: Sequence[int]) -> Packed:
        """The best rows found for these sequences on replica r."""
        replica, times = self._replicas[r], self._times[r]
        ordered = sorted(sequences, key=lambda i: (-times[i], i))
        if not self._packed:
            return self._timed(r, [[i] for i in ordered])
        if not ordered:
            return (), 0
        fewest = ceil_div(sum(self._lengths[i] for i in ordered), replica.longest_row)
        work, longest = sum(times[i] for i in ordered), times[ordered[0]]
        even = math.isqrt((replica.stages - 1) * work // max(1, replica.time.per_row_ns))
        best = max(fewest, min(even, ceil_div(work, max(1, longest))))
        counts = {min(max(fewest, best + extra), len(ordered)) for extra in (-2, -1, 0, 1, 2, 4)}
        packings = [self._timed(r, self._fill(r, ordered, n)) for n in sorted(counts | {fewest})]
        return min(packings, key=lambda packing: packing[1])

    def _fill(self, r: int, ordered: Sequence[int], count: int) -> list[list[int]]:
        """Each sequence to the shortest row that has room; a new row where none has."""
        longest_row, times = self._replicas[r].longest_row, self._times[r]
        rows: list[list[int]] = [[] for _ in range(count)]
        shortest = [(0, j, 0) for j in range(count)]  # heap of times, rows, tokens
        for i in ordered:
            passed = []
            while shortest and shortest[0][2] + self._lengths[i] > longest_row:
                passed.append(heappop(shortest))
            if not shortest:
                shortest.append((0, len(rows), 0))
                rows.append([])
            time, j, tokens = shortest[0]
            rows[j].append(i)
            heapreplace(shortest, (time + times[i], j, tokens + self._lengths[i]))
            for row in passed:
                heappush(shortest, row)
        return [row for row in rows if row]

    def _timed(self, r: int, rows: Sequence[Sequence[int]]) -> Packed:
        """Rows with the time of replica r that runs them."""
        times, fixed = self._times[r], self._replicas[r].time.per_row_ns
        loads = [sum(times[i] for i in row) + fixed for row in rows]
        return tuple(map(tuple, rows)), pipeline_ns(self._replicas[r].stages, loads)

    def _exchange(self, packed: list[Packed]) -> bool:
        """Gives work of the slowest replica to another one, if that makes both end sooner."""
        slowest = max(range(len(packed)), key=lambda r: packed[r][1])
        for other in sorted(range(len(packed)), key=lambda r: packed[r][1]):
            for left, right in self._trials(packed, slowest, other):
                ours, theirs = self._pack(slowest, left), self._pack(other, right)
                if max(ours[1], theirs[1]) < packed[slowest][1]:
                    packed[slowest], packed[other] = ours, theirs
                    return True
        return False

    def _trials(
        self, packed: Sequence[Packed], slow: int, other: int
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Sequences of both replicas after exchanges that come near to evening them out."""
        ours, theirs = ([i for row in packed[r][0] for i in row] for r in (slow, other))
        surplus = packed[slow][1] - packed[other][1]
        shifts = [a + b for a, b in zip(self._times[slow], self._times[other], strict=True)]
        back = sorted((shifts[j], j) for j in theirs if self._fits(slow, j))
        moves: list[tuple[int, int, int | None]] = []
        for i in ours:
            if self._fits(other, i):
                moves.append((abs(surplus - shifts[i]), i, None))
                at = bisect_left(back, (shifts[i] - surplus, 0))
                moves += [
                    (abs(surplus - shifts[i] + shift), i, j) for shift, j in back[at : at + 2]
                ]
        for _, i, j in nsmallest(TRIALS, moves, key=lambda move: move[0]):
            left, right = [n for n in ours if n != i], [n for n in theirs if n != j]
            yield (left if j is None else [*left, j]), [*right, i]

    def _fits(self, r: int, i: int) -> bool:
        return self._lengths[i] <= self._replicas[r].longest_row
