"""What a strategy takes for a set of length atoms: one definition, for a set or for all intervals.

The sequences of a set S share a strategy's dp replicas, integers in ns:

- like replicas: share + row time * ceil(tokens / (longest row * dp)) + fill, with share the larger
  of ceil(work / dp) and apart;
- unlike replicas: the least time in which their shares of the whole add up to one; a share is so
  many of `PARTS` parts of S, that is of work + row time * ceil(tokens / longest row), after the
  replica's fill; not less than apart;
- measured strategies: the sum of what their atoms take, as the work of one replica of one stage;

and what the strategy takes for each visit.

work: sum over S of count * sequence time. Padded, every sequence is a row, whose time is part of
that of the sequence instead. apart: sequences are not divided, so that the n longest
ones of S, of which none is shorter than l, take as long as n sequences of l; the most of that over
all lengths l in S. In a time, each replica runs floor(time / sequence time) of them. fill:
(stages - 1) rows, of the longest to run in S; packed, that is a row filled with sequences of one
atom, padded, one sequence. Every replica takes part, so a strategy takes atoms up to its shortest
longest row. A strategy that leaves replicas out is another one.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from formulations.costs.intervals import Array, Mask, interval_sums
from formulations.errors import PlannerError
from formulations.lengths.problem import Atom, Mixed, Rows, Strategy
from formulations.units import seconds

#: Above every time; three of them add up without leaving 64 bits.
NEVER: Final = np.int64(1) << 60
#: Unlike replicas divide a packed set into so many parts.
PARTS: Final = 1 << 14
#: PARTS times a time, and sums of times, stay within 64 bits.
_MOST_NS: Final = 1 << 47


class _Totals(NamedTuple):
    """Of sets of atoms, [set], or [kind of replica, set]; see the module."""

    work: Array
    apart: Array
    content: Array
    longest_row_ns: Array


class StrategyTimes:
    """The times of one strategy. Raises PlannerError for those that cannot be meant.

    Attributes
    ----------
    fits
        [atom] whether the strategy takes it.
    alike, further
        [kind] replicas of a kind; stages of one beyond the first.
    sequence_ns, work_ns, longest_row_ns
        [kind, atom] time of a sequence, of all sequences, of a row filled with sequences.
    content, room
        [atom] what fills rows, tokens or padded sequences; [kind] how much of it a row holds.
    row_ns
        [kind] time of a row that no sequence counts.
    """

    def __init__(self, strategy: Strategy, atoms: Sequence[Atom], rows: Rows) -> None:
        padded = rows == "padded"
        self.visit_ns, self.measured = strategy.visit_ns, bool(strategy.atoms_ns)
        kinds = strategy.kinds
        # As whole numbers of any size, of which some may be too large
        if self.measured:
            fits = [ns is not None for ns in strategy.atoms_ns]
            work, sequence = [[ns or 0 for ns in strategy.atoms_ns]], [[0] * len(atoms)]
            self.row_ns, longest, stages = [0], sequence, [1]
        else:
            fits = [atom.tokens <= strategy.longest for atom in atoms]
            fixed = [kind.time.per_row_ns for kind in kinds]
            self.row_ns = [0 if padded else c for c in fixed]
            stages = [kind.stages for kind in kinds]
            sequence = [
                [
                    (kind.time.sequence_ns(atom.tokens) + padded * c) * fit
                    for atom, fit in zip(atoms, fits, strict=True)
                ]
                for kind, c in zip(kinds, fixed, strict=True)
            ]
            work = [[a.count * ns for a, ns in zip(atoms, each, strict=True)] for each in sequence]
            longest = [
                [
                    ((1 if padded else kind.longest_row // atom.tokens) * ns + c) * fit
                    for atom, ns, fit in zip(atoms, each, fits, strict=True)
                ]
                for kind, each, c in zip(kinds, sequence, self.row_ns, strict=True)
            ]
        rows_ns = [c * sum(atom.count for atom in atoms) for c in self.row_ns]
        fill_ns = [n * max(each) for n, each in zip(stages, longest, strict=True)]
        step_ns = max(map(sum, zip(map(sum, work), rows_ns, fill_ns, strict=True)))
        step_ns += strategy.visit_ns + strategy.anchor_ns
        if step_ns >= _MOST_NS:
            allowed = f"less than {seconds(_MOST_NS):,.0f} s: fewer sequences, or shorter ones"
            problem = f"one replica would take {seconds(step_ns):,.0f} s for a step"
            raise PlannerError(f"strategy {strategy.name}: {problem}; allowed: {allowed}")
        self.fits = np.array(fits)
        self.alike, self.further = [*kinds.values()] or [1], [n - 1 for n in stages]
        self.sequence_ns, self.work_ns = np.array(sequence), np.array(work)
        self.longest_row_ns = np.array(longest)
        self._number = np.array([atom.count for atom in atoms])
        tokens = np.array([atom.tokens for atom in atoms])
        self.content = self._number * (0 if self.measured else 1 if padded else tokens)
        self.room = [1 if padded else kind.longest_row for kind in kinds] or [1]

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms, not empty; None if one does not fit."""
        if not self.fits[[*atoms]].all():
            return None
        return int(self._elapsed(self._totals_of_set(atoms))[0]) + self.visit_ns

    def of_intervals(self) -> Array:
        """[i, j] time of atoms i .. j - 1; NEVER where one does not fit, and for j <= i."""
        size = len(self.fits)
        first, stop = np.triu_indices(size + 1, 1)
        totals = self._totals(np.arange(size), first, stop)
        unfit = interval_sums(~self.fits)[..., first, stop]
        times = np.full((size + 1, size + 1), NEVER)
        times[first, stop] = np.where(unfit > 0, NEVER, self._elapsed(totals) + self.visit_ns)
        return times

    def parts(self, atoms: Sequence[int], time_ns: int) -> list[int]:
        """[kind] of unlike replicas, parts of a set that each does in a time; of `PARTS` in all."""
        fill_ns, alone_ns = self._alone(self._totals_of_set(atoms))
        parts = _parts(np.array(time_ns - self.visit_ns), fill_ns, alone_ns)
        of_kinds: list[int] = parts[:, 0].tolist()
        return of_kinds

    def undivided(self, atoms: Sequence[int]) -> list[int]:
        """Of a set, the atoms with which its longest sequences take more than its work."""
        chosen = np.array(sorted(atoms))
        if len(self.alike) > 1:
            least_ns = (self.of_set(atoms) or 0) - self.visit_ns
        else:
            least_ns = int(self.work_ns[0, chosen].sum() // self.alike[0]) + 1
        apart = self.apart_ns(chosen, np.cumsum(self._number[chosen][::-1])[::-1])
        atoms_apart: list[int] = chosen[apart >= least_ns].tolist()
        return atoms_apart

    def apart_ns(self, atoms: Array, number: Array) -> Array:
        """[..] least time in which replicas run so many sequences of each of these atoms."""
        each = self.sequence_ns[:, atoms]
        if len(self.alike) == 1:
            like: Array = -(-number // self.alike[0]) * each[0]
            return like
        alike = np.array(self.alike).reshape(-1, *(1,) * number.ndim)
        enough_ns = number * each.min(axis=0)  # 0 where a replica runs any number in no time
        each = np.maximum(each, 1)
        return _least(lambda time: (alike * (time // each)).sum(axis=0) >= number, enough_ns)

    def _totals_of_set(self, atoms: Sequence[int]) -> _Totals:
        return self._totals(np.array(sorted(atoms)), np.array([0]), np.array([len(atoms)]))

    def _totals(self, atoms: Array, first: Array, stop: Array) -> _Totals:
        """[set] of the runs first .. stop - 1 among some atoms, ascending."""
        begins, row = np.unique(first, return_inverse=True)
        ends, column = np.unique(stop, return_inverse=True)
        # [kind, begin, atom] the longest row from each begin on
        inside = np.arange(len(atoms)) >= begins[:, None]
        longest = self.longest_row_ns[:, None, atoms] * inside
        longest = np.maximum.accumulate(longest, axis=2)[:, row, stop - 1]
        # [begin, end] the most over atoms k >= begin, with as many sequences as k .. end - 1 have
        places = np.arange(len(atoms))[:, None]
        number = np.maximum(interval_sums(self._number[atoms])[..., places, ends], 0)
        apart = self.apart_ns(np.broadcast_to(atoms[:, None], number.shape), number)
        apart = np.maximum.accumulate(apart[::-1], axis=0)[::-1][begins][row, column]
        work = interval_sums(self.work_ns[:, atoms])[..., first, stop]
        return _Totals(work, apart, interval_sums(self.content[atoms])[..., first, stop], longest)

    def _elapsed(self, totals: _Totals) -> Array:
        """[set] the time of sets."""
        if len(self.alike) > 1:
            alike = np.array(self.alike)[:, None]
            fill_ns, alone_ns = self._alone(totals)
            shared_ns = _least(
                lambda time: (alike * _parts(time, fill_ns, alone_ns)).sum(axis=0) >= PARTS,
                (fill_ns + alone_ns).min(axis=0),
            )
            return np.maximum(shared_ns, totals.apart)
        dp = self.alike[0]
        num_rows = -(-totals.content // (self.room[0] * dp))
        share_ns = np.maximum(-(-totals.work[0] // dp), totals.apart)
        fill_ns = self.further[0] * totals.longest_row_ns[0]
        like: Array = share_ns + self.row_ns[0] * num_rows + fill_ns
        return like

    def _alone(self, totals: _Totals) -> tuple[Array, Array]:
        """[kind, set] fill of a replica, and what it takes beside that for all of a set."""
        num_rows = -(-totals.content // np.array(self.room)[:, None])
        alone_ns = totals.work + np.array(self.row_ns)[:, None] * num_rows
        return np.array(self.further)[:, None] * totals.longest_row_ns, alone_ns


def strategy_times(mixed: Mixed) -> list[StrategyTimes]:
    """[strategy] the times of all."""
    return [StrategyTimes(strategy, mixed.atoms, mixed.rows) for strategy in mixed.strategies]


def _parts(time: Array, fill_ns: Array, alone_ns: Array) -> Array:
    """[kind, set] parts of all that a replica does within times."""
    rest = time - fill_ns
    done = np.where(alone_ns > 0, rest * PARTS // np.maximum(alone_ns, 1), (rest >= 0) * PARTS)
    return np.clip(done, 0, PARTS)


def _least(enough: Callable[[Array], Mask], times: Array) -> Array:
    """[set] the least times that are enough, where `times` are."""
    low, high = np.zeros_like(times), times
    while (low < high).any():
        middle = (low + high) // 2
        good = enough(middle)
        low, high = np.where(good, low, middle + 1), np.where(good, middle, high)
    return high
