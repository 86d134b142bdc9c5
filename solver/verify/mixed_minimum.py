"""The verifier's own least times of steps of mixed lengths: nothing is shared with the planner.

Ascending order, exactly: from the last sequences back to the first, B[i, q, r] being the least time
in which atoms i and above are run, and the step ended, after q, with anchor r.

Any order, from below. A set of strategies U is opened from the longest atom down: f[U] is the least
sum of what atoms add at least (`least_ns`) and of the fills of the atoms that open each of U, which
are the longest that they run. So no tour of U is below f[U] and its best order. What that leaves
out is less than a row of each strategy, and nothing where times are measured. Tours of at most
`MOST_TOUR` strategies are ordered, of others every strategy is entered once.
"""

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from solver.verify.clock import Clock
from solver.verify.mixed_times import MixedTimes

#: Up to so many strategies all sets of them are looked at.
MOST_STRATEGIES = 20
MOST_TOUR = 7
#: Up to so many assignments are tried one by one.
MOST_ASSIGNMENTS = 20_000

Times = NDArray[np.float64]


def least_ascending_ns(times: MixedTimes, clock: Clock) -> float:
    """The least time in ascending order; inf if there is no step."""
    size, known = len(times.problem.atoms), range(len(times.strategies))
    intervals = _intervals(times, clock)
    between = np.array([[inf if a == b else times.between_ns(a, b) for b in known] for a in known])
    back = np.array([[times.back_ns(a, b) for b in known] for a in known], dtype=np.float64)
    rest = np.full((size + 1, len(known), len(known)), inf)  # B
    rest[size] = back
    begun = np.full((size, len(known), len(known)), inf)  # q begins at i, and then B
    for i in reversed(range(size)):
        clock.check()
        begun[i] = (intervals[:, i, i + 1 :, None] + rest[i + 1 :].transpose(1, 0, 2)).min(axis=1)
        onwards = (between[:, :, None] + begun[i][None]).min(axis=1)
        by_anchor = back + intervals[:, i, size]
        np.fill_diagonal(by_anchor, inf)
        rest[i] = np.minimum(onwards, by_anchor)
    out = np.array([[times.out_ns(r, q) for r in known] for q in known], dtype=np.float64)
    alone = intervals[:, 0, size]
    return float(min((out + begun[0]).min(), alone.min()))


def _intervals(times: MixedTimes, clock: Clock) -> Times:
    """[strategy, i, j] time of atoms i .. j - 1, added up atom by atom."""
    atoms = times.problem.atoms
    found = np.full((len(times.strategies), len(atoms) + 1, len(atoms) + 1), inf)
    for q, own in enumerate(times.strategies):
        apart = [0] * len(atoms)  # of atoms i .. j, by j
        for i in reversed(range(len(atoms))):
            clock.check()
            whole, row, number, tokens, total = [0] * len(own.kinds), [0] * len(own.kinds), 0, 0, 0
            for j in range(i, len(atoms)):
                if not own.fits[j]:
                    break
                if own.measured:
                    total += times.problem.strategies[q].atoms_ns[j] or 0
                    found[q, i, j + 1] = total
                    continue
                count = atoms[j].count
                whole = [w + count * each[j] for w, each in zip(whole, own.each_ns, strict=True)]
                row = [max(w, rows[j]) for w, rows in zip(row, own.rows_ns, strict=True)]
                number, tokens = number + count, tokens + count * atoms[j].tokens
                apart[j] = max(apart[j], own.apart_ns(i, number))
                found[q, i, j + 1] = own.sums_ns(whole, row, number, tokens, apart[j])
    return found


def least_tour_ns(times: MixedTimes, clock: Clock) -> float:
    """No tour in any order, with one group a strategy, is faster; inf if there is none."""
    fitting = [own.fits for own in times.strategies]
    ways = 1
    for of_atom in zip(*fitting, strict=True):
        ways *= sum(of_atom)
        if ways > MOST_ASSIGNMENTS:
            return _from_below(times, clock)
    return _by_all(times, clock)


def _by_all(times: MixedTimes, clock: Clock) -> float:
    """Every strategy for every atom."""
    known, atoms = range(len(times.strategies)), range(len(times.problem.atoms))
    choices = [[q for q in known if times.strategies[q].fits[k]] for k in atoms]
    tours: dict[frozenset[int], float] = {}
    groups: dict[tuple[int, tuple[int, ...]], int | None] = {}
    least = inf
    for chosen in product(*choices):
        clock.check()
        used, total = frozenset(chosen), 0.0
        for q in used:
            key = q, tuple(k for k in atoms if chosen[k] == q)
            if key not in groups:
                groups[key] = times.set_ns(*key)
            total += groups[key] or 0
        if total < least:
            if used not in tours:
                tours[used] = best_tour_ns(times, sorted(used), clock)
            least = min(least, total + tours[used])
    return least


def best_tour_ns(times: MixedTimes, used: Sequence[int], clock: Clock) -> float:
    """Least time of all switches of a step that uses these; of many, a bound."""
    known = range(len(times.strategies))
    if len(used) == 1:
        return 0
    if len(used) > MOST_TOUR:
        return sum(_entered_ns(times, q) for q in used)
    paths = _paths(times, used, clock)
    least, full = inf, (1 << len(used)) - 1
    for (seen, a, b), path_ns in paths.items():
        if seen == full:
            rounds = (times.out_ns(r, used[a]) + times.back_ns(used[b], r) for r in known)
            least = min(least, path_ns + min(rounds))
        elif (full ^ seen).bit_count() == 1:  # the other one is the anchor and runs last
            own = used[(full ^ seen).bit_length() - 1]
            ends_ns = times.out_ns(own, used[a]) + times.back_ns(used[b], own)
            least = min(least, path_ns + ends_ns)
    return least


def _paths(
    times: MixedTimes, used: Sequence[int], clock: Clock
) -> dict[tuple[int, int, int], float]:
    """Least time of all switches from a to b through those whose bits are set, by number."""
    known = range(len(used))
    paths = {(1 << a, a, a): 0.0 for a in known}
    for seen in range(1, 1 << len(used)):
        clock.check()
        inside = [n for n in known if seen >> n & 1]
        for a in inside:
            for b in inside:
                if (seen, a, b) not in paths:
                    continue
                for c in known:
                    if not seen >> c & 1:
                        key = seen | 1 << c, a, c
                        ns = paths[seen, a, b] + times.between_ns(used[b], used[c])
                        paths[key] = min(ns, paths.get(key, inf))
    return paths


def _entered_ns(times: MixedTimes, strategy: int) -> float:
    """Least of all ways into a strategy from another one."""
    others = [q for q in range(len(times.strategies)) if q != strategy]
    ways = (times.out_ns, times.between_ns, times.back_ns)
    return min((way(q, strategy) for q in others for way in ways), default=inf)


def _from_below(times: MixedTimes, clock: Clock) -> float:
    """The least of f[U] and a tour of U over all U."""
    count = len(times.strategies)
    if count > MOST_STRATEGIES:
        return 0
    sums = _opened(times, clock)
    entered = np.zeros(1)
    for q in range(count):
        entered = np.concatenate([entered, entered + _entered_ns(times, q)])
    entered[[1 << q for q in range(count)]] = 0
    lower = sums + entered
    least = inf
    for chosen in np.argsort(lower):
        if lower[chosen] >= least:
            break
        used = [q for q in range(count) if chosen >> q & 1]
        least = min(least, float(sums[chosen]) + best_tour_ns(times, used, clock))
    return least


def _opened(times: MixedTimes, clock: Clock) -> Times:
    """[U as bits] f of the module."""
    count = len(times.strategies)
    sums = np.full(1 << count, inf)
    sums[0] = 0
    for k in reversed(range(len(times.problem.atoms))):
        clock.check()
        adds, least = [inf] * count, np.full(1, inf)
        for q, own in enumerate(times.strategies):
            adds[q] = own.least_ns(k) if own.fits[k] else inf
            least = np.concatenate([least, np.minimum(least, adds[q])])
        found = sums + least
        for q, own in enumerate(times.strategies):
            if adds[q] < inf:
                before, after = sums.reshape(-1, 2, 1 << q), found.reshape(-1, 2, 1 << q)
                opened = before[:, 0] + (adds[q] + own.fill_ns(k))
                np.minimum(after[:, 1], opened, out=after[:, 1])
        sums = found
    sums[0] = inf
    return sums
