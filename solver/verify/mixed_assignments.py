"""Whether atoms can be divided among given strategies so that all together take less than a claim.

Depth first from the longest atom on. What is divided so far takes at least its own time; and what
its atoms add at least, the fills of those strategies, what the others add at least (`least_ns`)
with the strategy that suits each best, and the most by which one of these must raise a fill.
"""

from collections.abc import Sequence

from solver.verify.clock import Clock
from solver.verify.mixed_times import MixedTimes, Sums


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
        self._rest = [0.0]  # of atoms below k
        for ways in self._adds:
            self._rest.append(self._rest[-1] + min(ways)[0])

    def none_is_below(self) -> bool:
        """Whether it is shown that no assignment takes less; False: one may, or trials ran out."""
        empty = [own.nothing for own in self._own]
        return self._closed(len(self._adds) - 1, empty, [0] * len(empty), 0.0)

    def _closed(self, atom: int, sums: list[Sums], fills: list[int], added_ns: float) -> bool:
        """Whether nothing below begins so: atoms above `atom` are divided; sums, fills: of each."""
        self.trials -= 1
        if self.trials < 0:
            return False
        if not self.trials % 1000:
            self._clock.check()
        if self._least_ns(atom, fills, added_ns) >= self._below_ns:
            return True
        own_ns = sum(own.sums_ns(one) for own, one in zip(self._own, sums, strict=True))
        if own_ns >= self._below_ns:
            return True
        if atom < 0:
            return False
        for adds_ns, n in sorted(self._adds[atom]):
            more, higher = list(sums), list(fills)
            more[n] = self._own[n].with_atom(sums[n], atom)
            higher[n] = max(fills[n], self._fills[n][atom])
            if not self._closed(atom - 1, more, higher, added_ns + adds_ns):
                return False
        return True

    def _least_ns(self, atom: int, fills: list[int], added_ns: float) -> float:
        """What any way to go on takes."""
        raised = 0.0
        for k in range(atom + 1):
            best = min(self._adds[k])[0]
            raised = max(
                raised,
                min(
                    adds_ns - best + max(0, self._fills[n][k] - fills[n])
                    for adds_ns, n in self._adds[k]
                ),
            )
        return added_ns + sum(fills) + self._rest[atom + 1] + raised
