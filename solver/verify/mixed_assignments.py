"""Whether atoms can be divided among given strategies so that all together take less than a claim.

Depth first from the longest atom on, every strategy being given some atom. Of a strategy that has
atoms, own is their time, and slack what that is above what they add at least (`least_ns`) and their
fill: long sequences undivided, and rows not full. Further atoms that add a, and raise the fill by
f, make its time max(own, own - slack + a + f) at least, which for any share y of 1 is at least
own + y (a + f - slack). With y the most that an atom left saves by each ns of a that it hides in
the slack, no atom left takes less than with the strategy that suits it best. So all take own, less
y slack; what the atoms left add at best; the least fills of strategies without atoms; and the most
by which one atom left must take more.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from solver.verify.clock import Clock
from solver.verify.mixed_times import MixedTimes, Sums


class Given(NamedTuple):
    """What a strategy has: its atoms' sums and time, what they add at least, and their fill, ns."""

    sums: Sums
    own_ns: int = 0
    added_ns: float = 0.0
    fill_ns: int = 0


class Assignments:
    """The search; trials: partial assignments that it may still look at."""

    def __init__(
        self, times: MixedTimes, used: Sequence[int], below_ns: float, trials: int, clock: Clock
    ) -> None:
        self._own = [times.strategies[q] for q in used]
        self._below_ns, self.trials, self._clock = below_ns, trials, clock
        atoms = range(len(times.problem.atoms))
        self._adds = [
            [(own.least_ns(k), n) for n, own in enumerate(self._own) if own.fits[k]] for k in atoms
        ]
        self._fills = [[own.fill_ns(k) for k in atoms] for own in self._own]
        self._best = [min(ways)[0] for ways in self._adds]
        self._rest = [0.0, *accumulate(self._best)]  # of atoms below k
        # [n][k] of atoms below k: the least fill, the most saved by each ns hidden in slack
        self._opens = [[inf] for _ in used]
        self._saves = [[0.0] for _ in used]
        for k in atoms:
            adds = {n: adds_ns for adds_ns, n in self._adds[k]}
            for n, (opens, saves) in enumerate(zip(self._opens, self._saves, strict=True)):
                opens.append(min(opens[-1], self._fills[n][k] if n in adds else inf))
                saved = self._best[k] / adds[n] if adds.get(n) else 0.0
                saves.append(max(saves[-1], saved))

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
        for adds_ns, n in sorted(self._adds[atom]):
            own, before = self._own[n], given[n]
            sums = own.with_atom(before.sums, atom)
            fill_ns = max(before.fill_ns, self._fills[n][atom])
            more = Given(sums, own.sums_ns(sums), before.added_ns + adds_ns, fill_ns)
            if not self._closed(atom - 1, [*given[:n], more, *given[n + 1 :]]):
                return False
        return True

    def _least_ns(self, atom: int, given: list[Given]) -> float:
        """What any way to go on takes."""
        own, total, shares, fills = 0.0, self._rest[atom + 1], list[float](), list[float]()
        for n, one in enumerate(given):
            slack_ns = max(0.0, one.own_ns - one.added_ns - one.fill_ns)
            opened = one.sums.number > 0
            shares.append(self._saves[n][atom + 1] if slack_ns else 1.0)
            fills.append(one.fill_ns if opened else self._opens[n][atom + 1])
            own += one.own_ns if opened else fills[n]
            total += one.own_ns - shares[n] * slack_ns if opened else fills[n]
        if max(own, total) >= self._below_ns:
            return max(own, total)
        raised = 0.0
        for k in range(atom + 1):
            least = min(
                shares[n] * (adds_ns + max(0, self._fills[n][k] - fills[n]))
                for adds_ns, n in self._adds[k]
            )
            raised = max(raised, least - self._best[k])
        return total + raised
