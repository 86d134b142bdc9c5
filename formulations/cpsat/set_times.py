"""What a strategy takes for the atoms that it runs: one part of the model of tours.

The definition is that of `formulations.lengths.strategy_time`, exactly with all k in (2) and (3):
most of them never decide, and are left out until they do.

Sets. Atoms k that fit; levels l: the longest rows peak[1] < peak[2] < ... that atoms bring; kinds i
of replicas, m_i of each.
Parameters. work, tokens, number and peak of atoms; p stages, longest row R, row time c of a kind.
Variables. runs[k], given; long[l]: a row is of level l or above; time, ns; share: work on each of
dp like replicas; rows[i] on one replica; of unlike ones takes[i], and parts[i] of PARTS;
whole[i, k] sequences of k and longer ones.
Objective. None of its own: minimisation of the time makes what is rounded up the least it may be.
Constraints.
(1) runs[k] <= long[level of k]; long[l + 1] <= long[l]; peak = sum over l of its step if long[l].
(2) Packed, like: time = share + c rows + (p - 1) peak; dp share >= work; R dp rows >= tokens;
    for some k, share >= sequence time of k * whole[k], dp whole[k] >= number of those >= k that
    run.
(3) Packed, unlike: parts[i] whole[i] <= PARTS (time - (p_i - 1) peak_i) if takes[i], whole being
    work + c_i rows_i with R_i rows_i >= tokens; sum of m_i parts[i] >= PARTS if anything runs;
    for some k, time >= sequence time of k * whole[i, k], and sum of m_i whole[i, k] >= number of
    those >= k that run.
(4) Padded, with longest[k] for the longest atom that runs, and rows[i, k] of its length: time >=
    sum over k of peak_i(k) (rows[i, k] + (p_i - 1) longest[k]) if takes[i]; rows[i, k] only if
    longest[k]; sum over i and k' >= k of m_i rows[i, k'] >= number of those >= k that run.
(5) Cut for (3) and (4): time >= sum over k of h(k) + fill; h(k) = 1 / sum of m_i / w_i(k), with w_i
    work or number * peak, and fill the largest over k of the least (p_i - 1) peak_i(k). For h is
    concave and doubles with w, so that h(w + w') >= h(w) + h(w').
Assumptions, Left out. None.
Size. O(K) literals and rows for every kind.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor

import numpy as np
from ortools.sat.python import cp_model

from formulations.cpsat.terms import Linear, total_of, weighted
from formulations.lengths.problem import Mixed
from formulations.lengths.strategy_time import PARTS, MeasuredTimes, StrategyTimes

Runs = Mapping[int, cp_model.IntVar]


def time_of(
    model: cp_model.CpModel,
    mixed: Mixed,
    times: StrategyTimes | MeasuredTimes,
    runs: Runs,
    most_ns: int,
    apart: Collection[int],
) -> Linear:
    """Time of a strategy for the atoms that it runs, 0 for none; ns, `most_ns` or less.

    apart: the atoms k of (2) and (3); the fewer, the less it may be below the definition's time.
    """
    if not runs:
        return 0
    if isinstance(times, MeasuredTimes):
        return weighted((int(times.atoms_ns[k]) for k in runs), runs.values())
    part = _Part(model, mixed, times, runs, most_ns, apart)
    if mixed.rows == "padded":
        return part.padded()
    return part.packed() if len(times.kinds) == 1 else part.unlike()


class _Part:
    """The time of one strategy of replicas."""

    def __init__(
        self,
        model: cp_model.CpModel,
        mixed: Mixed,
        times: StrategyTimes,
        runs: Runs,
        most_ns: int,
        apart: Collection[int],
    ) -> None:
        self._model, self._kinds, self._times, self._runs = model, times.kinds, times, runs
        self._most_ns, self._apart = most_ns, apart
        self._tokens = [atom.tokens * atom.count for atom in mixed.atoms]
        self._number = [atom.count for atom in mixed.atoms]

    def _peak(self, peaks: Sequence[int]) -> Linear:
        """(1); the largest of peaks[atom] over the atoms that run."""
        own = defaultdict[int, list[cp_model.IntVar]](list)
        for k, literal in self._runs.items():
            own[peaks[k]].append(literal)
        levels = {peak: self._model.new_bool_var(f"long[{peak}]") for peak in sorted(own)}
        for peak, literals in own.items():
            for literal in literals:
                self._model.add_implication(literal, levels[peak])
        for lower, upper in pairwise(levels.values()):
            self._model.add_implication(upper, lower)
        steps = (upper - lower for lower, upper in pairwise([0, *levels]))
        return weighted(steps, levels.values())

    def _sum(self, values: Sequence[int]) -> Linear:
        return weighted((values[k] for k in self._runs), self._runs.values())

    def _quotient(
        self, values: Sequence[int], divisor: int, name: str, most: int = 0
    ) -> cp_model.IntVar:
        """An integer >= the sum of the values of what runs / divisor, up to `most` if need be."""
        largest = -(-sum(values[k] for k in self._runs) // divisor)
        found = self._model.new_int_var(0, max(most, largest), name)
        self._model.add(divisor * found >= self._sum(values))
        return found

    def packed(self) -> Linear:
        """(2)."""
        replica, dp = self._kinds[0]
        share = self._quotient(self._times.work_ns[0].tolist(), dp, "work", self._apart_ns)
        self._add_apart(share)
        rows = self._quotient(self._tokens, dp * replica.longest_row, "rows")
        return total_of(
            share,
            replica.time.per_row_ns * rows,
            (replica.stages - 1) * self._peak(self._times.longest_row_ns[0].tolist()),
        )

    def unlike(self) -> Linear:
        """(3)."""
        time, shares = self._time(self._times.work_ns.tolist()), list[Linear]()
        for i, (kind, alike) in enumerate(self._kinds):
            work, c = self._times.work_ns[i].tolist(), kind.time.per_row_ns
            rows = self._quotient(self._tokens, kind.longest_row, f"rows[{i}]")
            most = sum(work[k] for k in self._runs) + c * rows.proto.domain[1]
            whole = self._model.new_int_var(0, most, f"whole[{i}]")
            self._model.add(whole == self._sum(work) + c * rows)
            parts = self._model.new_int_var(0, PARTS, f"parts[{i}]")
            takes = self._model.new_bool_var(f"takes[{i}]")
            self._model.add(parts <= PARTS * takes)
            done = self._model.new_int_var(0, PARTS * most, f"done[{i}]")
            self._model.add_multiplication_equality(done, [parts, whole])
            fill = (kind.stages - 1) * self._peak(self._times.longest_row_ns[i].tolist())
            self._model.add(done <= PARTS * (time - fill)).only_enforce_if(takes)
            shares.append(alike * parts)
        for literal in self._runs.values():
            self._model.add(sum(shares) >= PARTS).only_enforce_if(literal)
        self._add_apart(time)
        return time

    @cached_property
    def _numbers(self) -> list[int]:
        """[atom that may run] sequences of it and of longer ones."""
        return list(accumulate(self._number[k] for k in reversed([*self._runs])))[::-1]

    @property
    def _apart_ns(self) -> int:
        """What the longest sequences take apart, if all atoms run."""
        return int(self._times.apart_ns(np.array([*self._runs]), np.array(self._numbers)).max())

    def _add_apart(self, time: cp_model.IntVar) -> None:
        """The time is at least that of the n longest sequences, each as the shortest of them.

        For a length that does not run as well: the next longer one that does takes no less.
        """
        longer: Linear = 0
        for k, number in reversed(list(zip(self._runs, self._numbers, strict=True))):
            longer = longer + self._number[k] * self._runs[k]
            if k not in self._apart:
                continue
            whole: Linear = 0
            for (_, alike), each in zip(self._kinds, self._times.sequence_ns[:, k], strict=True):
                own = self._model.new_int_var(0, -(-number // alike), f"whole[{k}]")
                self._model.add(int(each) * own <= time)
                whole = whole + alike * own
            self._model.add(whole >= longer)

    def padded(self) -> Linear:
        """(4)."""
        model, atoms = self._model, list(self._runs)
        longest = [model.new_bool_var(f"longest[{k}]") for k in atoms]
        model.add_at_most_one(longest)
        for n, k in enumerate(atoms):
            model.add(self._runs[k] <= sum(longest[n:]))
        totals = list(accumulate(self._number[k] for k in atoms))
        rows = [
            [model.new_int_var(0, -(-most // alike), "rows") for most in totals]
            for _, alike in self._kinds
        ]
        done: Linear = 0
        needed: Linear = 0
        for n in reversed(range(len(atoms))):
            needed = needed + self._number[atoms[n]] * self._runs[atoms[n]]
            for (_, alike), own in zip(self._kinds, rows, strict=True):
                model.add(own[n] <= -(-totals[n] // alike) * longest[n])
                done = done + alike * own[n]
            model.add(done >= needed)
        times = [self._padded_time(i, own, longest) for i, own in enumerate(rows)]
        if len(times) == 1:
            return times[0]
        whole = [
            [n * peak for n, peak in zip(self._number, peaks, strict=True)]
            for peaks in self._times.longest_row_ns.tolist()
        ]
        time = self._time(whole)
        for own_time, own, (_, alike) in zip(times, rows, self._kinds, strict=True):
            takes = model.new_bool_var("takes")
            model.add(sum(own) <= -(-totals[-1] // alike) * takes)
            model.add(time >= own_time).only_enforce_if(takes)
        return time

    def _padded_time(
        self, kind: int, rows: Sequence[cp_model.IntVar], longest: Sequence[cp_model.IntVar]
    ) -> Linear:
        peaks = self._times.longest_row_ns[kind].tolist()
        costs = [peaks[k] for k in self._runs]
        fill = weighted(costs, longest)
        return total_of(weighted(costs, rows), (self._kinds[kind][0].stages - 1) * fill)

    def _time(self, whole: Sequence[Sequence[int]]) -> cp_model.IntVar:
        """(5); whole: [kind][atom] time for a replica that takes all of it."""
        time = self._model.new_int_var(0, self._most_ns, "time")
        alike = [number for _, number in self._kinds]
        least = [
            floor(1 / sum(Fraction(m, max(w, 1)) for m, w in zip(alike, each, strict=True)))
            for each in zip(*whole, strict=True)
        ]
        before = [kind.stages - 1 for kind, _ in self._kinds]
        peaks = zip(*self._times.longest_row_ns.tolist(), strict=True)
        fills = [min(n * peak for n, peak in zip(before, each, strict=True)) for each in peaks]
        self._model.add(time >= self._sum(least) + self._peak(fills))
        return time
