"""What a strategy takes for a set of length atoms: one definition, for a set or for all intervals.

The sequences of a set S share a strategy's dp replicas, integers in ns:

- like replicas: share + row time * ceil(tokens / (longest row * dp)) + fill, with share the larger
  of ceil(work / dp) and apart;
- unlike replicas: the least time in which their shares of the whole add up to one; a share is so
  many of `PARTS` parts of S, that is of work + row time * ceil(tokens / longest row), after the
  replica's fill; not less than apart;
- measured strategies: the sum of what their atoms take;

and what the strategy takes for each visit.

work: sum over S of count * sequence time. Padded, every sequence is a row, whose time is part of
that of the sequence instead. apart: sequences are not divided, so that the n longest
ones of S, of which none is shorter than l, take as long as n sequences of l; the most of that over
all lengths l in S. In a time, each replica runs floor(time / sequence time) of them. fill:
(stages - 1) rows, of the longest to run in S; packed, that is a row filled with sequences of one
atom, padded, one sequence. Every replica takes part, so a strategy takes atoms up to its shortest
longest row. A strategy that leaves replicas out is another one.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from formulations.errors import PlannerError
from formulations.lengths.problem import Atom, Mixed, Replica, Rows, Strategy
from formulations.units import seconds

Numbers = NDArray[np.int64]

#: Above every time; three of them add up without leaving 64 bits.
NEVER: Final = np.int64(1) << 60
#: Unlike replicas divide a packed set into so many parts.
PARTS: Final = 1 << 14
#: PARTS times a time, and sums of times, stay within 64 bits.
_MOST_NS: Final = 1 << 47


@dataclass(frozen=True)
class _Totals:
    """Of sets of atoms, [set], or [kind of replica, set]; see the module."""

    work: Numbers
    apart: Numbers
    content: Numbers
    longest_row_ns: Numbers


class StrategyTimes:
    """The times of one strategy. Raises PlannerError for those that cannot be meant.

    fits: [atom] whether it takes the atom. kinds: its replicas and how many of each. content:
    [atom] what fills rows, tokens, or padded sequences; room: [kind] for that in a row.
    """

    def __init__(self, strategy: Strategy, atoms: Sequence[Atom], rows: Rows) -> None:
        padded = rows == "padded"
        self.visit_ns = strategy.visit_ns
        alike = Counter[Replica]()
        for replica in strategy.replicas:
            alike[replace(replica, count=1)] += replica.count
        self.kinds = tuple(alike.items())
        self.fits = np.array([atom.tokens <= strategy.longest for atom in atoms])
        sequence_ns = [[0] * len(atoms) for _ in self.kinds]  # [kind of replica, atom]
        longest_ns = [[0] * len(atoms) for _ in self.kinds]  # of rows of sequences of one atom
        for i, (kind, _) in enumerate(self.kinds):
            row_ns, total_ns = kind.time.per_row_ns, 0
            for k, atom in enumerate(atoms):
                if self.fits[k]:
                    fitting = 1 if padded else kind.longest_row // atom.tokens
                    alone_ns = kind.time.sequence_ns(atom.tokens)
                    sequence_ns[i][k] = alone_ns + padded * row_ns
                    longest_ns[i][k] = fitting * alone_ns + row_ns
                total_ns += atom.count * (sequence_ns[i][k] + row_ns)
            _check(strategy, total_ns + kind.stages * max(longest_ns[i]))
        self._number = np.array([atom.count for atom in atoms])
        self.sequence_ns = np.array(sequence_ns)
        self.work_ns = self.sequence_ns * self._number
        self.longest_row_ns = np.array(longest_ns)
        tokens = np.array([atom.tokens for atom in atoms])
        self.content = self._number * (1 if padded else tokens)
        self.room = [1 if padded else kind.longest_row for kind, _ in self.kinds]
        #: [kind of replica] that no sequence counts
        self.row_ns = [0 if padded else kind.time.per_row_ns for kind, _ in self.kinds]

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms, not empty; None if one does not fit."""
        if not self.fits[[*atoms]].all():
            return None
        return int(self._elapsed(self._totals_of_set(atoms))[0]) + self.visit_ns

    def of_intervals(self) -> Numbers:
        """[i, j] time of atoms i .. j - 1; NEVER where one does not fit, and for j <= i."""
        size = len(self.fits)
        first, stop = np.triu_indices(size + 1, 1)
        totals = self._totals(np.arange(size), first, stop)
        unfit = _between(~self.fits, first, stop)
        times = np.full((size + 1, size + 1), NEVER)
        times[first, stop] = np.where(unfit > 0, NEVER, self._elapsed(totals) + self.visit_ns)
        return times

    def parts(self, atoms: Sequence[int], time_ns: int) -> list[int]:
        """[kind] of unlike replicas, parts of a set that each does in a time; of `PARTS` in all."""
        fill, alone = self._alone(self._totals_of_set(atoms))
        parts: list[int] = _parts(np.array([time_ns - self.visit_ns]), fill, alone)[:, 0].tolist()
        return parts

    def _totals_of_set(self, atoms: Sequence[int]) -> _Totals:
        return self._totals(np.array(sorted(atoms)), np.array([0]), np.array([len(atoms)]))

    def _totals(self, atoms: Numbers, first: Numbers, stop: Numbers) -> _Totals:
        """[set] of the runs first .. stop - 1 among some atoms, ascending."""
        begins, row = np.unique(first, return_inverse=True)
        ends, column = np.unique(stop, return_inverse=True)
        # [kind, begin, atom] the longest row from each begin on
        inside = np.arange(len(atoms)) >= begins[:, None]
        longest = self.longest_row_ns[:, None, atoms] * inside
        longest = np.maximum.accumulate(longest, axis=2)[:, row, stop - 1]
        # [begin, end] the most over atoms k >= begin, with as many sequences as k .. end - 1 have
        places = np.arange(len(atoms))[:, None]
        number = np.maximum(_between(self._number[atoms], places, ends), 0)
        apart = self.apart_ns(np.broadcast_to(atoms[:, None], number.shape), number)
        apart = np.maximum.accumulate(apart[::-1], axis=0)[::-1][begins][row, column]
        work = _between(self.work_ns[:, atoms], first, stop)
        return _Totals(work, apart, _between(self.content[atoms], first, stop), longest)

    def undivided(self, atoms: Sequence[int]) -> list[int]:
        """Of a set, the atoms with which its longest sequences take more than its work."""
        chosen = np.array(sorted(atoms))
        least_ns = int(self.work_ns[0, chosen].sum() // self.kinds[0][1]) + 1
        if len(self.kinds) > 1:
            least_ns = (self.of_set(atoms) or 0) - self.visit_ns
        apart = self.apart_ns(chosen, np.cumsum(self._number[chosen][::-1])[::-1])
        atoms_apart: list[int] = chosen[apart >= least_ns].tolist()
        return atoms_apart

    def apart_ns(self, atoms: Numbers, number: Numbers) -> Numbers:
        """[..] least time in which replicas run so many sequences of each of these atoms."""
        each = self.sequence_ns[:, atoms]
        if len(self.kinds) == 1:
            like: Numbers = -(-number // self.kinds[0][1]) * each[0]
            return like
        alike = np.array([count for _, count in self.kinds]).reshape(-1, *(1,) * number.ndim)
        enough_ns = number * each.min(axis=0)  # 0 where a replica runs any number in no time
        each = np.maximum(each, 1)
        return _least(lambda time: (alike * (time // each)).sum(axis=0) >= number, enough_ns)

    def _elapsed(self, totals: _Totals) -> Numbers:
        """[set] the time of sets."""
        if len(self.kinds) > 1:
            return self._unlike(totals)
        replica, dp = self.kinds[0]
        num_rows = -(-totals.content // (self.room[0] * dp))
        share_ns = np.maximum(-(-totals.work[0] // dp), totals.apart)
        full_ns = share_ns + self.row_ns[0] * num_rows
        time: Numbers = full_ns + (replica.stages - 1) * totals.longest_row_ns[0]
        return time

    def _unlike(self, totals: _Totals) -> Numbers:
        alike = np.array([number for _, number in self.kinds])[:, None]
        fill, alone = self._alone(totals)
        shared = _least(
            lambda time: (alike * _parts(time, fill, alone)).sum(axis=0) >= PARTS,
            (fill + alone).min(axis=0),
        )
        return np.maximum(shared, totals.apart)

    def _alone(self, totals: _Totals) -> tuple[Numbers, Numbers]:
        """[kind, set] fill of a replica, and what it takes beside that for all of a set."""
        further = np.array([kind.stages - 1 for kind, _ in self.kinds])[:, None]
        num_rows = -(-totals.content // np.array(self.room)[:, None])
        alone = totals.work + np.array(self.row_ns)[:, None] * num_rows
        return further * totals.longest_row_ns, alone


class MeasuredTimes:
    """The same of a strategy whose times are given."""

    def __init__(self, strategy: Strategy) -> None:
        self.atoms_ns = np.array([0 if ns is None else ns for ns in strategy.atoms_ns])
        self.fits = np.array([ns is not None for ns in strategy.atoms_ns])
        self.visit_ns = strategy.visit_ns
        _check(strategy, sum(ns or 0 for ns in strategy.atoms_ns))

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms; None if one is not known."""
        chosen = np.array(atoms)
        total_ns = int(self.atoms_ns[chosen].sum()) + self.visit_ns
        return total_ns if self.fits[chosen].all() else None

    def of_intervals(self) -> Numbers:
        """[i, j] time of atoms i .. j - 1; NEVER where one is not known, and for j <= i."""
        ends = np.arange(len(self.fits) + 1)
        measured = _between(~self.fits, ends[:, None], ends) == 0
        times = _between(self.atoms_ns, ends[:, None], ends) + self.visit_ns
        return np.where(measured & (ends[:, None] < ends), times, NEVER)


def strategy_times(mixed: Mixed) -> list[StrategyTimes | MeasuredTimes]:
    """[strategy] the times of all."""
    return [
        MeasuredTimes(strategy)
        if strategy.atoms_ns
        else StrategyTimes(strategy, mixed.atoms, mixed.rows)
        for strategy in mixed.strategies
    ]


def _check(strategy: Strategy, rows_ns: int) -> None:
    step_ns = rows_ns + strategy.visit_ns + strategy.anchor_ns
    if step_ns >= _MOST_NS:
        allowed = f"less than {seconds(_MOST_NS):,.0f} s: fewer sequences, or shorter ones"
        found = f"one replica would take {seconds(step_ns):,.0f} s for a step"
        raise PlannerError(f"strategy {strategy.name}: {found}; allowed: {allowed}")


def _parts(time: Numbers, fill: Numbers, alone: Numbers) -> Numbers:
    """[kind, set] parts of all that a replica does within times."""
    rest = time - fill
    parts = np.where(alone > 0, rest * PARTS // np.maximum(alone, 1), (rest >= 0) * PARTS)
    return np.clip(parts, 0, PARTS)


def _between(
    values: NDArray[np.int64] | NDArray[np.bool_], first: Numbers, stop: Numbers
) -> Numbers:
    """[..., set] sums of values[..., first:stop]."""
    sums: Numbers = np.zeros((*values.shape[:-1], values.shape[-1] + 1), dtype=np.int64)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    runs: Numbers = sums[..., stop] - sums[..., first]
    return runs


def _least(enough: Callable[[Numbers], NDArray[np.bool_]], times: Numbers) -> Numbers:
    """[set] the least times that are enough, where `times` are."""
    low, high = np.zeros_like(times), times
    while (low < high).any():
        middle = (low + high) // 2
        good = enough(middle)
        low, high = np.where(good, low, middle + 1), np.where(good, middle, high)
    return high
