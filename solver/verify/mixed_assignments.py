"""Whether atoms can be divided among given strategies so that all together take less than a claim.

Depth first from the longest atom on, every strategy being given some atom. Of a strategy that has
atoms, own is their time, and slack what that is above what they add at least (`least_ns`) and their
fill: long sequences undivided, and rows not full. Further atoms that add a make its time
max(own, own - slack + a) at least, which for any share y of 1 is at least own + y (a - slack). With
y the most that an atom left saves by each ns of a that it hides in the slack, no atom left takes
less than with the strategy that suits it best. So all take own, less y slack; what the atoms left
add at best; and the least fills of strategies without atoms. The same holds of the work alone,
where atoms left hide in rows that are not full: a is their work, and slack only what long sequences
undivided take above.
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
    """[k] least that atoms below k add; [strategy][k] most that one saves by each ns hidden."""

    def __init__(self, adds: Adds, num_strategies: int) -> None:
        best = [min(ways)[0] for ways in adds]
        self.rest = [0.0, *accumulate(best)]
        self.saves = [[0.0] for _ in range(num_strategies)]
        for ways, best_ns in zip(adds, best, strict=True):
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
        self._adds = [[(own.least_ns(k), n) for n, own in known if own.fits[k]] for k in atoms]
        work = [[(own.work_ns(k), n) for n, own in known if own.fits[k]] for k in atoms]
        self._rates = [_Rates(adds, len(used)) for adds in (self._adds, work)]
        fills = [[own.fill_ns(k) if own.fits[k] else inf for k in atoms] for own in self._own]
        self._opens = [list(accumulate(of_atom, min, initial=inf)) for of_atom in fills]

    def none_is_below(self) -> bool:
        """Whether it is shown that no assignment takes less; False: one may, or trials ran out."""
        return self._closed(len(self._adds) - 1, [Given(own.nothing) for own in self._own])

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
        for _, n in sorted(self._adds[atom]):
            more = self._with(given[n], n, atom)
            if not self._closed(atom - 1, [*given[:n], more, *given[n + 1 :]]):
                return False
        return True

    def _with(self, before: Given, n: int, atom: int) -> Given:
        """What a strategy has with one more atom."""
        own = self._own[n]
        sums = own.with_atom(before.sums, atom)
        own_ns, fill_ns = own.sums_ns(sums), max(before.fill_ns, own.fill_ns(atom))
        added_ns = before.added_ns + own.least_ns(atom)
        slack_ns = own_ns - added_ns - fill_ns
        left_ns = slack_ns - own.room_ns(sums)
        return Given(sums, own_ns, fill_ns, (max(0.0, slack_ns), max(0.0, left_ns)), added_ns)

    def _least_ns(self, atom: int, given: list[Given]) -> float:
        """What any way to go on takes."""
        opens = [own[atom + 1] for own in self._opens]
        pairs = zip(given, opens, strict=True)
        least = own = sum(one.own_ns if one.sums.number else fill for one, fill in pairs)
        for part, rates in enumerate(self._rates):
            shares = zip(rates.saves, given, strict=True)
            hidden = sum(saves[atom + 1] * one.slack_ns[part] for saves, one in shares)
            least = max(least, own - hidden + rates.rest[atom + 1])
        return least
