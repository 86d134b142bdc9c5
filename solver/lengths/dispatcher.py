"""Sequences of a step to rows and replicas, so that the slowest replica ends first.

Starts, each followed by exchanges for as long as they help:

- replicas filled one after another within a time, which grows from start to start (`row_fill`);
- full rows dealt out whole, so many to each replica as its speed asks for (D'Hondt), the row of
  most work to the replica that still wants most work per row: where replicas have one stage, few
  rows count more than which sequences lie together.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from time import monotonic
from typing import get_args

import numpy as np

from formulations.lengths.dispatch import Dispatch, dispatch_ns
from formulations.lengths.problem import Rows, Strategy
from solver.lengths.exchange import Exchange
from solver.lengths.row_fill import Remaining, Way, fill, full_rows

#: Times within which replicas are filled.
TIMES = 24
#: The share by which each time is longer than the one before, and how that grows while replicas
#: filled within it leave sequences.
STEP, GROWTH = 2.5e-4, 1.1


class Dispatcher:
    """Deals the sequences of one step to the replicas of a strategy; every one must fit one."""

    def __init__(self, strategy: Strategy, lengths: Sequence[int], rows: Rows) -> None:
        self._strategy, self._lengths, self._packed = strategy, lengths, rows == "packed"
        times = {
            replica: [replica.time.sequence_ns(length) for length in lengths]
            for replica in set(strategy.replicas)
        }
        self._times = np.array([times[replica] for replica in strategy.replicas])
        self._alone = [max(1, own) for own in self._times.sum(axis=1).tolist()]  # ns, [replica]
        one_stage = all(replica.stages == 1 for replica in strategy.replicas)
        self._ways: tuple[Way, ...] = ("full",) if one_stage else get_args(Way)
        self._shortest_first = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
        self._within = max(1, sum(self._alone) // len(self._alone) ** 2)
        while (dispatch := self._filled(self._within, "full")) is None:
            self._within *= 2
        self._best = dispatch

    @property
    def time_ns(self) -> int:
        """Time of the best dispatch so far, ns."""
        return dispatch_ns(self._strategy, self._lengths, self._best)

    @property
    def dispatch(self) -> Dispatch:
        """The best dispatch so far."""
        return self._best

    def improve(self, enough_ns: int, until: float) -> None:
        """Look for better ones until one is quick enough, or the clock says `until`."""
        exchange = Exchange(
            self._strategy.replicas, self._lengths, self._times, packed=self._packed
        )
        least = self.time_ns
        for start in chain(self._fills(enough_ns), self._evened(enough_ns)):
            if least <= enough_ns or monotonic() > until:
                return
            exchange.start(start)
            while exchange.time_ns > enough_ns and monotonic() < until and exchange.improve():
                pass
            if exchange.time_ns < least:
                least, self._best = exchange.time_ns, exchange.dispatch

    def _fills(self, enough_ns: int) -> Iterator[Dispatch]:
        """Dispatches within ever more time."""
        within, step, times = float(enough_ns), STEP, 0
        while times < TIMES:
            tried = [self._filled(min(math.ceil(within), self._within), way) for way in self._ways]
            filled = [dispatch for dispatch in tried if dispatch is not None]
            yield from filled
            step = STEP if filled else step * GROWTH
            within, times = within * (1 + step), times + bool(filled)

    def _filled(self, within: int, way: Way) -> Dispatch | None:
        """Replicas filled within a time, the roomiest and fastest first; None if some are left."""
        replicas, left = self._strategy.replicas, self._shortest_first
        rows: list[list[list[int]]] = [[] for _ in replicas]
        for r in sorted(range(len(rows)), key=lambda r: (-replicas[r].longest_row, self._alone[r])):
            rows[r] = fill(replicas[r], self._remaining(r, left), self._packed, within, way).rows
            taken = {i for row in rows[r] for i in row}
            left = [i for i in left if i not in taken]
        return None if left else _dispatch(rows)

    def _remaining(self, r: int, left: list[int]) -> Remaining:
        """What is left, as replica r sees it."""
        return Remaining(left, [self._lengths[i] for i in left], self._times[r][left].tolist())

    def _evened(self, within: int) -> Iterator[Dispatch]:
        """Full rows dealt out whole, as if more and more rows were free; of like rows only."""
        replicas, first = self._strategy.replicas, self._strategy.replicas[0]
        like = all((one.stages, one.longest_row) == (1, first.longest_row) for one in replicas)
        if not (self._packed and like):
            return
        ever = self._alone[0] + len(self._lengths) * first.time.per_row_ns
        everything = self._remaining(0, self._shortest_first)
        rows = full_rows(first, everything, True, ever, ever).rows
        rows.sort(key=lambda row: -self._times[0][row].sum())
        for free in range(len(replicas) + 1):
            yield self._evened_out(rows, self._shares(len(rows) + free), within)

    def _shares(self, rows: int) -> list[int]:
        """So many rows, to every replica by its speed (D'Hondt)."""
        shares = [0] * len(self._alone)
        for _ in range(rows):
            r = min(range(len(shares)), key=lambda r: self._alone[r] * (shares[r] + 1))
            shares[r] += 1
        return shares

    def _evened_out(self, rows: Sequence[list[int]], shares: list[int], within: int) -> Dispatch:
        """Each row, of most work first, to the replica that still wants most work per row."""
        dealt: list[list[list[int]]] = [[] for _ in shares]
        wanted = [
            within - share * replica.time.per_row_ns
            for share, replica in zip(shares, self._strategy.replicas, strict=True)
        ]
        for row in rows:
            r = max(
                (r for r, share in enumerate(shares) if len(dealt[r]) < share),
                key=lambda r: wanted[r] / (shares[r] - len(dealt[r])) / self._alone[r],
            )
            dealt[r].append(row)
            wanted[r] -= int(self._times[r][row].sum())
        return _dispatch(dealt)


def _dispatch(rows: Sequence[Sequence[Sequence[int]]]) -> Dispatch:
    return Dispatch(tuple(tuple(tuple(row) for row in own) for own in rows))
