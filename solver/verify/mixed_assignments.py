"""Whether atoms can be divided among given strategies so that all together take less than a claim.

Depth first from the longest atom on, every strategy being given some atom. Of a strategy that has
atoms, own is their time, and slack what that is above what they add at least (`least_ns`) and their
fill: long sequences undivided, and rows not full. Further atoms that add a, and raise the fill by
f, make its time max(own, own - slack + a + f) at least, which for any share y of 1 is at least
own + y (a + f - slack). With y the most that an atom left saves by each ns of a that it hides in
the slack, no atom left takes less than with the strategy that suits it best. So all take own, less
y slack; what the atoms left add at best; the least fills of strategies without atoms; and the most
by which one atom left must take more. The same holds of the work alone, where atoms left hide in
rows that are not full: a is their work, and slack only what long sequences undivided take above.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from solver.verify.clock import Clock
from solver.verify.mixed_times import MixedTimes, Sums

#: [atom] what it adds to each strategy that takes it: time, strategy.
Adds = list[list[tuple[float, int]]]


class Given(NamedTuple):
    """What a strategy has: its atoms' sums and time, their fill, and the slack of the time, ns.

    slack_ns: above what they add, and above their work.
    """

    sums: Sums
    own_ns: int = 0
    fill_ns: int = 0
    slack_ns: tuple[float, float] = (0.0, 0.0)
    added_ns: float = 0.0


class _Rates:
    """What atoms add, at best, all below k at best, and [n][k] most saved by what is hidden."""

    def __init__(self, adds: Adds, num_strategies: int) -> None:
        self.adds = adds
        self.best = [min(ways)[0] for ways in adds]
        self.rest = [0.0, *accumulate(self.best)]
        self.saves = [[0.0] for _ in range(num_strategies)]
        for ways, best_ns in zip(adds, self.best, strict=True):
            for own in self.saves:
                own.append(own[-1])
            for adds_ns, n in ways:
                if adds_ns:
                    self.saves[n][-1] = max(self.saves[n][-1], best_ns / adds_ns)


class Assignments:
    """The search; trials: partial assignments that it may still look at."""

    def __init__(
        self, times: MixedTimes, used: Sequence[int], below_ns: float, trials: int, clock: Clock
    ) -> None:
        self._own = [times.strategies[q] for q in used]
        self._below_ns, self.trials, self._clock = below_ns, trials, clock
        atoms, known = range(len(times.problem.atoms)), list(enumerate(self._own))
        adds = [[(own.least_ns(k), n) for n, own in known if own.fits[k]] for k in atoms]
        work = [[(own.work_ns(k), n) for n, own in known if own.fits[k]] for k in atoms]
        self._rates = _Rates(adds, len(used)), _Rates(work, len(used))
        self._fills = [[own.fill_ns(k) for k in atoms] for own in self._own]
        self._opens = [
            list(
                accumulate(
                    (own.fill_ns(k) if own.fits[k] else inf for k in atoms), min, initial=inf
                )
            )
            for own in self._own
        ]

    def none_is_below(self) -> bool:
        """Whether it is shown that no assignment takes less; False: one may, or trials ran out."""
        return self._closed(len(self._fills[0]) - 1, [Given(own.nothing) for own in self._own])

    def _closed(self, atom: int, given: list[Given]) -> bool:
        """Whether nothing below begins so: atoms above `atom` are divided."""
        self.trials -= 1
        if self.trials < 0:
            return False
        if not self.trials % 1000:
            self._clock.check()
        if self._least_ns(atom, given) >= self._below_ns:
            return True
        if atom < 0:
            return False
        for _, n in sorted(self._rates[0].adds[atom]):
            more = self._with(given[n], n, atom)
            if not self._closed(atom - 1, [*given[:n], more, *given[n + 1 :]]):
                return False
        return True

    def _with(self, before: Given, n: int, atom: int) -> Given:
        """What a strategy has with one more atom."""
        own = self._own[n]
        sums = own.with_atom(before.sums, atom)
        own_ns, fill_ns = own.sums_ns(sums), max(before.fill_ns, self._fills[n][atom])
        added_ns = before.added_ns + own.least_ns(atom)
        slack_ns = own_ns - added_ns - fill_ns
        left_ns = slack_ns - own.room_ns(sums)
        return Given(sums, own_ns, fill_ns, (max(0.0, slack_ns), max(0.0, left_ns)), added_ns)

    def _least_ns(self, atom: int, given: list[Given]) -> float:
        """What any way to go on takes."""
        opens = [own[atom + 1] for own in self._opens]
        pairs = list(zip(given, opens, strict=True))
        fills = [one.fill_ns if one.sums.number else fill for one, fill in pairs]
        least = own = sum(one.own_ns if one.sums.number else fill for one, fill in pairs)
        for part, rates in enumerate(self._rates):
            shares = [
                rates.saves[n][atom + 1] if one.slack_ns[part] > 1 else 1.0
                for n, one in enumerate(given)
            ]
            hidden = sum(s * one.slack_ns[part] for s, one in zip(shares, given, strict=True))
            total = own - hidden + rates.rest[atom + 1]
            if total < self._below_ns:
                total += self._raised_ns(atom, rates, shares, fills)
            least = max(least, total)
            if least >= self._below_ns:
                return least
        return least

    def _raised_ns(
        self, atom: int, rates: _Rates, shares: list[float], fills: list[float]
    ) -> float:
        """The most by which one of the atoms left takes more than its least."""
        raised = 0.0
        for k in range(atom + 1):
            ways = (
                shares[n] * (adds_ns + max(0, self._fills[n][k] - fills[n]))
                for adds_ns, n in rates.adds[k]
            )
            raised = max(raised, min(ways) - rates.best[k])
        return raised
