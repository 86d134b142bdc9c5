"""What a strategy takes for a set of length atoms: one definition, for a set or for all intervals.

The sequences of a set S share a strategy's dp replicas, integers in ns. Of each atom k a replica
runs the share s[i, k] that its kind i does while all others do theirs: 1 / dp where they are alike,
else in proportion to how quick it is with sequences of k. So all work as long, and it takes

    max(ceil(work / dp), apart) + max over i of row time[i] * rows[i] + fill[i];              (1)

of measured strategies the sum of what their atoms take, as the work of one replica of one stage;
and what the strategy takes for each visit.

work: dp times what replicas take for their shares of S; of like ones the sum over S of count *
sequence time. Padded, every sequence is a row, whose time is part of that of the sequence instead.
apart: sequences are not divided, so that of the n longest ones of S, of which none is shorter than
l, some replica runs ceil(n / dp); the most of that over all lengths l in S, on the quickest kind.
rows: a replica's share of all tokens, in rows of the longest length. fill: (stages - 1) rows, of
the longest to run in S; packed, that is a row filled with sequences of one atom, padded, one
sequence. Every replica takes part, so a strategy takes atoms up to its shortest longest row. A
strategy that leaves replicas out is another one.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

import numpy as np

from formulations.costs.intervals import Array, interval_sums
from formulations.errors import PlannerError
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Atom, Mixed, Strategy
from formulations.units import seconds

#: Above every time; three of them add up without leaving 64 bits.
NEVER: Final = np.int64(1) << 60
#: Sums of times stay within 64 bits.
_MOST_NS: Final = 1 << 47


class StrategyTimes:
    """The times of one strategy. Raises PlannerError for those that cannot be meant.

    Attributes
    ----------
    fits
        [atom] whether the strategy takes it.
    dp, further
        Replicas; [kind of replica] stages of one beyond the first.
    sequence_ns, work_ns
        [atom] time of a sequence on the quickest kind; work, see the module.
    longest_row_ns
        [kind, atom] time of a row filled with sequences.
    content, room
        [kind, atom] dp times a replica's share of what fills rows, tokens or padded sequences;
        [kind] how much of it a row holds.
    row_ns
        [kind] time of a row that no sequence counts.
    """

    def __init__(self, strategy: Strategy, atoms: Sequence[Atom], rows: Rows) -> None:
        padded = rows == "padded"
        self.visit_ns, self.measured = strategy.visit_ns, bool(strategy.atoms_ns)
        kinds, self.dp = strategy.kinds, strategy.dp or 1
        self.row_ns = [0 if padded else kind.time.per_row_ns for kind in kinds] or [0]
        self.further = [kind.stages - 1 for kind in kinds] or [0]
        self.room = [1 if padded else kind.longest_row for kind in kinds] or [1]
        # As whole numbers of any size, of which some may be too large: [atom][kind]
        fits, each, work, content, longest = [], [], [], [], []
        for k, atom in enumerate(atoms):
            cell = strategy.atoms_ns[k] if self.measured else None
            fit = atom.tokens <= strategy.longest if kinds else cell is not None
            alone = [
                (kind.time.sequence_ns(atom.tokens) + padded * kind.time.per_row_ns) * fit
                for kind in kinds
            ]
            fits.append(fit)
            each.append(min(alone, default=0))
            longest.append(
                [
                    ((1 if padded else kind.longest_row // atom.tokens) * ns + c) * fit
                    for kind, ns, c in zip(kinds, alone, self.row_ns, strict=bool(kinds))
                ]
                or [0]
            )
            filling = atom.count * (1 if padded else atom.tokens)
            if self.measured:
                work.append(cell or 0)
                content.append([0])
            elif min(alone) == 0:
                work.append(0)
                content.append([filling * fit] * len(kinds))
            else:
                speed = sum(Fraction(n, ns) for n, ns in zip(kinds.values(), alone, strict=True))
                work.append(ceil(atom.count * self.dp / speed))
                content.append([ceil(filling * self.dp / (speed * ns)) for ns in alone])
        slowest_ns = sum(work) + sum(max(ns) for ns in longest) * (1 + max(self.further))
        rows_ns = max(self.row_ns) * sum(atom.count for atom in atoms)
        step_ns = slowest_ns + rows_ns + strategy.visit_ns + strategy.anchor_ns
        if step_ns >= _MOST_NS:
            allowed = f"less than {seconds(_MOST_NS):,.0f} s: fewer sequences, or shorter ones"
            problem = f"one replica would take {seconds(step_ns):,.0f} s for a step"
            raise PlannerError(f"strategy {strategy.name}: {problem}; allowed: {allowed}")
        self.fits, self._number = np.array(fits), np.array([atom.count for atom in atoms])
        self.sequence_ns, self.work_ns = np.array(each), np.array(work)
        self.content, self.longest_row_ns = np.array(content).T, np.array(longest).T

    def of_set(self, atoms: Sequence[int]) -> int | None:
        """Time of a set of atoms, not empty; None if one does not fit."""
        if not self.fits[[*atoms]].all():
            return None
        chosen = np.array(sorted(atoms))
        return int(self._of_runs(chosen, np.array([0]), np.array([len(chosen)]))[0])

    def of_intervals(self) -> Array:
        """[i, j] time of atoms i .. j - 1; NEVER where one does not fit, and for j <= i."""
        size = len(self.fits)
        first, stop = np.triu_indices(size + 1, 1)
        unfit = interval_sums(~self.fits)[..., first, stop]
        times = np.full((size + 1, size + 1), NEVER)
        of_runs = self._of_runs(np.arange(size), first, stop)
        times[first, stop] = np.where(unfit > 0, NEVER, of_runs)
        return times

    def rows(self, content: Array) -> Array:
        """[kind, set] rows on a replica, of sums of `content`."""
        num_rows: Array = -(-content // (self.dp * np.array(self.room)[:, None]))
        return num_rows

    def apart_ns(self, atoms: Array, number: Array) -> Array:
        """[..] what so many sequences of each of these atoms take at least, undivided."""
        least: Array = -(-number // self.dp) * self.sequence_ns[atoms]
        return least

    def _of_runs(self, atoms: Array, first: Array, stop: Array) -> Array:
        """[set] the times (1) of the runs first .. stop - 1 among some atoms, ascending."""
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
        work = interval_sums(self.work_ns[atoms])[..., first, stop]
        num_rows = self.rows(interval_sums(self.content[:, atoms])[..., first, stop])
        row_ns, further = np.array(self.row_ns)[:, None], np.array(self.further)[:, None]
        shared_ns = np.maximum(-(-work // self.dp), apart) + self.visit_ns
        times: Array = shared_ns + (row_ns * num_rows + further * longest).max(axis=0)
        return times


def strategy_times(mixed: Mixed) -> list[StrategyTimes]:
    """[strategy] the times of all."""
    return [StrategyTimes(strategy, mixed.atoms, mixed.rows) for strategy in mixed.strategies]
