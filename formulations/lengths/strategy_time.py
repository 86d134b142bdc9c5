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
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from formulations.errors import PlannerError
from formulations.lengths.problem import Atom, Measured, Mixed, Replica, Rows, Strategy
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
        self.kinds = tuple(Counter(strategy.replicas).items())
        self.fits = np.array([atom.tokens <= strategy.longest for atom in atoms])
        known = [atom if fit else None for atom, fit in zip(atoms, self.fits, strict=True)]
        each = [[_sequence_ns(kind, atom, rows) for atom in known] for kind, _ in self.kinds]
        longest = [[_row_ns(kind, atom, rows) for atom in known] for kind, _ in self.kinds]
        for (kind, _), one, row in zip(self.kinds, each, longest, strict=True):
            pairs = zip(atoms, one, strict=True)
            work_ns = sum(atom.count * (ns + kind.time.per_row_ns) for atom, ns in pairs)
            _check(strategy, work_ns + kind.stages * max(row))
        self._number = np.array([atom.count for atom in atoms])
        self.sequence_ns = np.array(each)  #: [kind of replica, atom]
        self.work_ns = self.sequence_ns * self._number
        self.longest_row_ns = np.array(longest)  #: [kind of replica, atom]
        tokens = np.array([atom.tokens for atom in atoms])
        self.content = self._number * (1 if padded else tokens)
        self.room = [1 if padded else kind.longest_row for kind, _ in self.kinds]
        #: [kind of replica] that no sequence counts
        self.row_ns = [0 if padded else kind.time.per_row_ns for kind, _ in self.kinds]

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms, not empty; None if one does not fit."""
        if not self.fits[[*atoms]].all():
            return None
        return int(self._elapsed(self._totals(atoms))[0]) + self.visit_ns

    def parts(self, atoms: Sequence[int], time_ns: int) -> list[int]:
        """[kind] of unlike replicas, so many of the `PARTS` of a set one does where all take so."""
        fill, whole = self._alone(self._totals(atoms))
        parts: list[int] = _parts(np.array([time_ns - self.visit_ns]), fill, whole)[:, 0].tolist()
        return parts

    def _totals(self, atoms: Sequence[int]) -> _Totals:
        chosen = np.array(sorted(atoms))
        return _Totals(
            self.work_ns[:, chosen].sum(axis=1)[:, None],
            self.apart_ns(chosen, np.cumsum(self._number[chosen][::-1])[::-1]).max(keepdims=True),
            self.content[chosen].sum(keepdims=True),
            self.longest_row_ns[:, chosen].max(axis=1)[:, None],
        )

    def of_intervals(self) -> Numbers:
        """[i, j] time of atoms i .. j - 1; NEVER where one does not fit, and for j <= i."""
        size = len(self.fits)
        first, stop = np.triu_indices(size + 1, 1)
        inside = np.arange(size) >= np.arange(size)[:, None]
        longest = np.maximum.accumulate(self.longest_row_ns[:, None, :] * inside, axis=2)
        totals = _Totals(
            _between(self.work_ns, first, stop),
            self._apart_of_intervals()[first, stop],
            _between(self.content, first, stop),
            longest[:, first, stop - 1],
        )
        unfit = _between(~self.fits, first, stop)
        times = np.full((size + 1, size + 1), NEVER)
        times[first, stop] = np.where(unfit > 0, NEVER, self._elapsed(totals) + self.visit_ns)
        return times

    def undivided(self, atoms: Sequence[int]) -> list[int]:
        """Of a set, the atoms with which its longest sequences take more than its work."""
        chosen = np.array(sorted(atoms))
        least_ns = int(self.work_ns[0, chosen].sum() // self.kinds[0][1]) + 1
        if len(self.kinds) > 1:
            least_ns = (self.of_set(atoms) or 0) - self.visit_ns
        apart = self.apart_ns(chosen, np.cumsum(self._number[chosen][::-1])[::-1])
        found: list[int] = chosen[apart >= least_ns].tolist()
        return found

    def apart_ns(self, atoms: Numbers, number: Numbers) -> Numbers:
        """[..] least time in which replicas run so many sequences of each of these atoms."""
        each = self.sequence_ns[:, atoms]
        if len(self.kinds) == 1:
            like: Numbers = -(-number // self.kinds[0][1]) * each[0]
            return like
        alike = np.array([own for _, own in self.kinds]).reshape(-1, *(1,) * number.ndim)
        most = number * each.min(axis=0)  # 0 where a replica runs any number in no time
        each = np.maximum(each, 1)
        return _least(lambda time: (alike * (time // each)).sum(axis=0) >= number, most)

    def _apart_of_intervals(self) -> Numbers:
        """[i, j] the most over the atoms k >= i, with as many sequences as k .. j - 1 have."""
        atoms, ends = np.arange(len(self.fits)), np.arange(len(self.fits) + 1)
        number = np.maximum(_between(self._number, atoms[:, None], ends), 0)
        apart = self.apart_ns(np.broadcast_to(atoms[:, None], number.shape), number)
        most: Numbers = np.maximum.accumulate(apart[::-1], axis=0)[::-1]
        return most

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
        fill, whole = self._alone(totals)
        shared = _least(
            lambda time: (alike * _parts(time, fill, whole)).sum(axis=0) >= PARTS,
            (fill + whole).min(axis=0),
        )
        return np.maximum(shared, totals.apart)

    def _alone(self, totals: _Totals) -> tuple[Numbers, Numbers]:
        """[kind, set] fill of a replica, and what it takes beside that for all of a set."""
        further = np.array([kind.stages - 1 for kind, _ in self.kinds])[:, None]
        num_rows = -(-totals.content // np.array(self.room)[:, None])
        whole = totals.work + np.array(self.row_ns)[:, None] * num_rows
        return further * totals.longest_row_ns, whole


class MeasuredTimes:
    """The same of a strategy whose times are given."""

    def __init__(self, strategy: Measured) -> None:
        self.atoms_ns = np.array([0 if ns is None else ns for ns in strategy.atoms_ns])
        self.fits = np.array([ns is not None for ns in strategy.atoms_ns])
        self.visit_ns = strategy.visit_ns
        _check(strategy, sum(ns or 0 for ns in strategy.atoms_ns))

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms; None if one is not known."""
        chosen = np.array(atoms)
        whole_ns = int(self.atoms_ns[chosen].sum()) + self.visit_ns
        return whole_ns if self.fits[chosen].all() else None

    def of_intervals(self) -> Numbers:
        """[i, j] time of atoms i .. j - 1; NEVER where one is not known, and for j <= i."""
        ends = np.arange(len(self.fits) + 1)
        known = _between(~self.fits, ends[:, None], ends) == 0
        times = _between(self.atoms_ns, ends[:, None], ends) + self.visit_ns
        return np.where(known & (ends[:, None] < ends), times, NEVER)


def strategy_times(mixed: Mixed) -> list[StrategyTimes | MeasuredTimes]:
    """[strategy] the times of all."""
    return [
        MeasuredTimes(strategy)
        if isinstance(strategy, Measured)
        else StrategyTimes(strategy, mixed.atoms, mixed.rows)
        for strategy in mixed.strategies
    ]


def _sequence_ns(replica: Replica, atom: Atom | None, rows: Rows) -> int:
    """What a sequence adds to its row, padded the whole row."""
    if atom is None:
        return 0
    row_ns = replica.time.per_row_ns if rows == "padded" else 0
    return replica.time.sequence_ns(atom.tokens) + row_ns


def _row_ns(replica: Replica, atom: Atom | None, rows: Rows) -> int:
    """A row of sequences of one atom: as many as fit, or one."""
    if atom is None:
        return 0
    sequences = 1 if rows == "padded" else replica.longest_row // atom.tokens
    return sequences * replica.time.sequence_ns(atom.tokens) + replica.time.per_row_ns


def _check(strategy: Strategy | Measured, rows_ns: int) -> None:
    most_ns = rows_ns + strategy.visit_ns + strategy.anchor_ns
    if most_ns >= _MOST_NS:
        allowed = f"less than {seconds(_MOST_NS):,.0f} s: fewer sequences, or shorter ones"
        found = f"one replica would take {seconds(most_ns):,.0f} s for a step"
        raise PlannerError(f"strategy {strategy.name}: {found}; allowed: {allowed}")


def _parts(time: Numbers, fill: Numbers, whole: Numbers) -> Numbers:
    """[kind, set] parts of all that a replica does within times."""
    rest = time - fill
    parts = np.where(whole > 0, rest * PARTS // np.maximum(whole, 1), (rest >= 0) * PARTS)
    return np.clip(parts, 0, PARTS)


def _between(
    values: NDArray[np.int64] | NDArray[np.bool_], first: Numbers, stop: Numbers
) -> Numbers:
    """[..., set] sums of values[..., first:stop]."""
    sums: Numbers = np.zeros((*values.shape[:-1], values.shape[-1] + 1), dtype=np.int64)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    found: Numbers = sums[..., stop] - sums[..., first]
    return found


def _least(enough: Callable[[Numbers], NDArray[np.bool_]], most: Numbers) -> Numbers:
    """[set] the least times that are enough, where `most` are."""
    low, high = np.zeros_like(most), most
    while (low < high).any():
        middle = (low + high) // 2
        good = enough(middle)
        low, high = np.where(good, low, middle + 1), np.where(good, middle, high)
    return high
