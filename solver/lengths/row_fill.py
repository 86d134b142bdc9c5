"""Rows of one replica, filled with the longest sequences first while it ends within a time.

As MULTIFIT fills machines (Coffman, Garey, Johnson 1978), but machines have rows, and a pipeline
also waits for its longest row. Two ways, neither always better:

- full: as few rows as can be, begun with the longest sequences, then each made full, which suits a
  large fixed time;
- even: more rows side by side, sequences to the shortest, which takes most of the longest ones, so
  that those left for other replicas are short.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Literal

from formulations.lengths.problem import Replica

Way = Literal["full", "even"]
#: Numbers of rows tried on either side of the best for rows of any length.
AROUND = 3
#: Sequences of which no other number of rows is tried.
MANY = 2_000
#: Numbers of even rows grow by one, or by this part of them.
FINE = 16
#: Long sequences have fewer tokens in the same time than all have, say this share.
LESS = 0.8
#: Rows looked at for one with room.
LOOKS = 16


@dataclass(frozen=True)
class Remaining:
    """Sequences by ascending length: indices, tokens, and their times on a replica, ns."""

    indices: list[int]
    tokens: list[int]
    times: list[int]


@dataclass(frozen=True)
class Filled:
    """Rows of a replica, and what their sequences take, ns."""

    rows: list[list[int]]
    work_ns: int


def fill(replica: Replica, left: Remaining, packed: bool, within: int, way: Way) -> Filled:
    """The most work found that the replica ends within a time, ns."""
    fitting = bisect_right(left.tokens, replica.longest_row)
    if not (packed and fitting):
        return full_rows(replica, left, packed, within, within)
    further, longest = replica.stages - 1, max(1, left.times[fitting - 1] + replica.time.per_row_ns)
    rows = _best_number(replica, within, longest)
    if way == "even":
        share = min(1.0, within / max(1, sum(left.times)))  # of the tokens, or somewhat less
        rows = max(rows, int(LESS * share * sum(left.tokens)) // replica.longest_row)
        numbers = count(rows, 1 + rows // FINE)
        tried = _while_more(even_rows(replica, left, within, n) for n in numbers)
        return max(tried, key=_work_ns)
    around = AROUND if further and fitting <= MANY else 0
    tries = range(max(1, rows - around), rows + around + 1)
    filled = []
    for row_ns in {max(longest, within // (n + further)) if further else within for n in tries}:
        begun = len(full_rows(replica, left, packed, within, row_ns).rows)
        filled.append(full_rows(replica, left, packed, within, row_ns, begun))
    return max(filled, key=_work_ns)


def _work_ns(filled: Filled) -> int:
    return filled.work_ns


def _best_number(replica: Replica, within: int, longest: int) -> int:
    """In how many rows of any length a replica does most within a time (`dispatch_bound`)."""
    further, fixed = replica.stages - 1, replica.time.per_row_ns
    best = within / longest if further else 0.0
    if fixed:
        best = min(best, math.sqrt(further * within / fixed))
    return max(1, round(best) - further)


def _while_more(tried: Iterator[Filled]) -> Iterator[Filled]:
    """Up to the first that does no more work than the one before."""
    before = -1
    for filled in tried:
        if filled.work_ns <= before:
            return
        before = filled.work_ns
        yield filled


@dataclass
class _Row:
    """A row as it fills: sequences, its time in ns, and tokens that still have room."""

    time_ns: int
    room: int
    sequences: list[int] = field(default_factory=list)


@dataclass
class _Filling:
    """A replica that ends within a time while its rows fill; none takes more than `longest`, ns."""

    replica: Replica
    left: Remaining
    within: int
    longest: int
    rows: list[_Row] = field(default_factory=list)
    done: int = 0
    slowest: int = 0

    def begin(self) -> bool:
        """Begin a row with the longest sequence that has room; whether one has."""
        self.rows.append(_Row(self.replica.time.per_row_ns, self.replica.longest_row))
        begun = self.add(self.rows[-1])
        if not begun:
            self.rows.pop()
        return begun

    def add(self, row: _Row) -> bool:
        """Add the longest sequence that has room in a row; whether one has."""
        further, others = self.replica.stages - 1, self.done - bool(row.sequences) * row.time_ns
        ends = self.within - others - row.time_ns
        as_slowest = (ends - further * row.time_ns) // (further + 1)
        most = min(self.longest - row.time_ns, ends - further * self.slowest, as_slowest)
        at = min(bisect_right(self.left.times, most), bisect_right(self.left.tokens, row.room)) - 1
        if at < 0:
            return False
        row.sequences.append(self.left.indices.pop(at))
        row.room -= self.left.tokens.pop(at)
        row.time_ns += self.left.times.pop(at)
        self.done, self.slowest = others + row.time_ns, max(self.slowest, row.time_ns)
        return True


def full_rows(
    replica: Replica, left: Remaining, packed: bool, within: int, longest: int, begun: int = 0
) -> Filled:
    """Rows one after another, none of more than `longest`, ns, until none ends in time.

    So many are begun before any is made full; padded rows are full once begun.
    """
    left = Remaining(left.indices[:], left.tokens[:], left.times[:])
    filling = _Filling(replica, left, within, longest)
    while len(filling.rows) < max(1, begun) and filling.begin():
        pass
    for row in filling.rows:  # which grow
        while packed and filling.add(row):
            pass
        if row is filling.rows[-1]:
            filling.begin()
    rows = [row.sequences for row in filling.rows]
    return Filled(rows, filling.done - len(rows) * replica.time.per_row_ns)


def even_rows(replica: Replica, left: Remaining, within: int, count: int) -> Filled:
    """So many rows; each sequence to the shortest one that has room, if that ends in time."""
    further, fixed = replica.stages - 1, replica.time.per_row_ns
    rows: list[list[int]] = [[] for _ in range(count)]
    shortest = [(fixed, j, 0) for j in range(count)]  # heap of times, rows, tokens
    done, slowest = count * fixed, fixed
    for i, tokens, taken in zip(
        *map(reversed, (left.indices, left.tokens, left.times)), strict=True
    ):
        if done + taken + further * slowest > within:
            continue
        passed = list[tuple[int, int, int]]()
        while (
            shortest[0][2] + tokens > replica.longest_row
            and len(shortest) > 1
            and len(passed) < LOOKS
        ):
            passed.append(heappop(shortest))
        if (
            shortest[0][2] + tokens <= replica.longest_row
            and done + taken + further * max(slowest, shortest[0][0] + taken) <= within
        ):
            time, j, held = heappop(shortest)
            rows[j].append(i)
            heappush(shortest, (time + taken, j, held + tokens))
            done, slowest = done + taken, max(slowest, time + taken)
        for row in passed:
            heappush(shortest, row)
    return Filled([row for row in rows if row], done - count * fixed)
