"""What a strategy takes for the atoms that it runs: one part of the model of tours.

The definition is that of `formulations.lengths.strategy_time`, exactly with all k in (2) and (3):
most of them never decide, and are left out until they do.

Sets. Atoms k that fit; levels l: the longest rows peak[1] < peak[2] < ... that atoms bring; kinds i
of replicas, m_i of each.
Parameters. work, content, number and peak of atoms; p stages, room R in a row, row time c of a
kind: tokens, or padded sequences, of which a row has room for one, whose time is part of its work.
Variables. runs[k], given; long[l]: a row is of level l or above; time, ns; share: work on each of
dp like replicas; rows[i] on one replica; of unlike ones takes[i], and parts[i] of PARTS;
whole[i, k] sequences of k and longer ones.
Objective. None of its own: minimisation of the time makes what is rounded up the least it may be.
Constraints.
(1) runs[k] <= long[level of k]; long[l + 1] <= long[l]; peak = sum over l of its step if long[l].
(2) Like: time = share + c rows + (p - 1) peak; dp share >= work; R dp rows >= content; for some k,
    share >= sequence time of k * whole[k], dp whole[k] >= number of those >= k that run.
(3) Unlike: sum over k of work[i, k] taken[i, k] + c_i filled[i] <= PARTS (time - (p_i - 1) peak_i)
    if takes[i]; taken[i, k] >= parts[i] if k runs; filled[i] = parts[i] rows[i], R_i rows_i >=
    content; sum of m_i parts[i] >= PARTS if anything runs; for some k, time >= sequence time of k *
    whole[i, k], and sum of m_i whole[i, k] >= number of those >= k that run. (A product of parts
    and of all work, of 10^14 and more, made presolve of OR-Tools 9.15 lose optima.)
(4) Cut for (3): time >= sum over k of h(k) + fill; h(k) = 1 / sum of m_i / work_i(k), and fill the
    largest over k of the least (p_i - 1) peak_i(k). For h is concave and doubles with work, so that
    h(w + w') >= h(w) + h(w').
Assumptions, Left out. None.
Size. O(K) literals and rows for every kind.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor

import numpy as np

from formulations.lengths.problem import Mixed
from formulations.lengths.strategy_time import PARTS, StrategyTimes
from formulations.models.cpsat import CpSat
from formulations.models.model import Linear, Term, total_of, weighted

Runs = Mapping[int, Linear]


class SetTime:
    """Time of a strategy for the atoms that it runs, `term`, 0 for none; ns, `longest_ns` or less.

    apart: the atoms k of (2) and (3); the fewer, the less it may be below the definition's time.
    """

    def __init__(
        self,
        model: CpSat,
        mixed: Mixed,
        times: StrategyTimes,
        runs: Runs,
        longest_ns: int,
        apart: Collection[int],
    ) -> None:
        self._model, self._times, self._runs, self._apart = model, times, runs, apart
        self._count = [atom.count for atom in mixed.atoms]
        #: [atom that may run] sequences of it and of longer ones
        self._numbers = list(accumulate(self._count[k] for k in reversed([*runs])))[::-1]
        self.term: Term = 0
        if times.measured:
            self.term = self._sum(times.work_ns[0].tolist())
        elif runs:
            self.term = self._like() if len(times.alike) == 1 else self._unlike(longest_ns)

    def _sum(self, values: Sequence[int]) -> Term:
        return weighted((values[k] for k in self._runs), self._runs.values())

    def _peak(self, peaks: Sequence[int]) -> Term:
        """(1); the largest of peaks[atom] over the atoms that run."""
        by_peak = defaultdict[int, list[Linear]](list)
        for k, literal in self._runs.items():
            by_peak[peaks[k]].append(literal)
        levels = {peak: self._model.literal(f"long[{peak}]") for peak in sorted(by_peak)}
        for peak, literals in by_peak.items():
            for literal in literals:
                self._model.implies(1, literal, levels[peak])
        for lower, upper in pairwise(levels.values()):
            self._model.implies(1, upper, lower)
        steps = (upper - lower for lower, upper in pairwise([0, *levels]))
        return weighted(steps, levels.values())

    def _quotient(self, values: Sequence[int], divisor: int, name: str, up_to: int = 0) -> Linear:
        """An integer >= the sum of the values of what runs / divisor; up to `up_to` or more."""
        largest = -(-sum(values[k] for k in self._runs) // divisor)
        quotient = self._model.integer(name, max(up_to, largest))
        self._model.at_most(2, self._sum(values), weighted([divisor], [quotient]))
        return quotient

    def _like(self) -> Term:
        """(2)."""
        times, dp = self._times, self._times.alike[0]
        apart_ns = times.apart_ns(np.array([*self._runs]), np.array(self._numbers))
        share = self._quotient(times.work_ns[0].tolist(), dp, "work", int(apart_ns.max()))
        self._add_apart(share)
        rows = self._quotient(times.content.tolist(), dp * times.room[0], "rows")
        fill = weighted(times.further, [self._peak(times.longest_row_ns[0].tolist())])
        return total_of(share, weighted(times.row_ns, [rows]), fill)

    def _unlike(self, longest_ns: int) -> Term:
        """(3) and (4)."""
        model, times = self._model, self._times
        time, shares = model.time("time", longest_ns), list[Term]()
        # (4)
        works, peaks = times.work_ns.tolist(), times.longest_row_ns.tolist()
        least = [
            floor(1 / sum(Fraction(m, max(w, 1)) for m, w in zip(times.alike, each, strict=True)))
            for each in zip(*works, strict=True)
        ]
        fills = [
            min(n * peak for n, peak in zip(times.further, each, strict=True))
            for each in zip(*peaks, strict=True)
        ]
        model.at_most(4, total_of(self._sum(least), self._peak(fills)), time)
        # (3): by kind
        for i, alike in enumerate(times.alike):
            rows = self._quotient(times.content.tolist(), times.room[i], f"rows[{i}]")
            parts, takes = model.integer(f"parts[{i}]", PARTS), model.literal(f"takes[{i}]")
            model.at_most(3, parts, weighted([PARTS], [takes]))
            taken = list[Linear]()
            for k, runs in self._runs.items():
                taken.append(model.integer(f"taken[{i},{k}]", PARTS))
                model.at_most(3, weighted([1, PARTS, -PARTS], [parts, runs, 1]), taken[-1])
            done = weighted((works[i][k] for k in self._runs), taken)
            if c := times.row_ns[i]:
                filled = model.product(f"filled[{i}]", PARTS * model.upper(rows), parts, rows)
                done = weighted([1, c], [done, filled])
            before = -PARTS * times.further[i]
            room = weighted([PARTS, before], [time, self._peak(peaks[i])])
            model.at_most(3, done, room, takes)
            shares.append(weighted([alike], [parts]))
        for literal in self._runs.values():
            model.at_most(3, PARTS, total_of(*shares), literal)
        self._add_apart(time)
        return time

    def _add_apart(self, time: Linear) -> None:
        """The time is at least that of the n longest sequences, each as the shortest of them.

        For a length that does not run as well: the next longer one that does takes no less.
        """
        longer: Term = 0
        for k, number in reversed(list(zip(self._runs, self._numbers, strict=True))):
            longer = weighted([1, self._count[k]], [longer, self._runs[k]])
            if k not in self._apart:
                continue
            counted: Term = 0
            each_ns = self._times.sequence_ns[:, k].tolist()
            for alike, sequence_ns in zip(self._times.alike, each_ns, strict=True):
                sequences = self._model.integer(f"whole[{k}]", -(-number // alike))
                self._model.at_most(3, weighted([sequence_ns], [sequences]), time)
                counted = weighted([1, alike], [counted, sequences])
            self._model.at_most(3, longer, counted)
