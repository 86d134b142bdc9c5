"""The verifier's own least times of steps of mixed lengths: nothing is shared with the planner.

Ascending order, exactly: from the last sequences back to the first, B[i, q, r] being the least time
in which atoms i and above are run, and the step ended, after q, with anchor r.

Any order, from below. A set of strategies U is opened from the longest atom down: f[U] is the least
sum of what atoms add at least (`least_ns`) and of the fills of the atoms that open each of U, which
are the longest that they run. So no tour of U is below f[U] and its best order. What that leaves
out is of the order of a row of each strategy, and nothing where times are measured: sets for which
it matters are searched, `mixed_assignments`. Tours of at most `MOST_TOUR` strategies are ordered,
of others every strategy is entered once and left once.
"""

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from solver.verify.clock import Clock
from solver.verify.mixed_assignments import Assignments
from solver.verify.mixed_times import MixedTimes

#: Up to so many strategies all sets of them are looked at.
MOST_STRATEGIES = 20
MOST_TOUR = 12
#: Up to so many assignments are tried one by one.
MOST_ASSIGNMENTS = 20_000
#: Partial assignments that are looked at for all sets of strategies together.
MOST_TRIALS = 1_000_000

Times = NDArray[np.float64]


def least_ascending_ns(times: MixedTimes, clock: Clock) -> float:
    """The least time in ascending order; inf if there is no step."""
    size, known = len(times.problem.atoms), range(len(times.strategies))
    intervals = _intervals(times, clock)
    between = np.array([[inf if a == b else times.between_ns(a, b) for b in known] for a in known])
    back = np.array([[times.back_ns(a, b) for b in known] for a in known], dtype=np.float64)
    rest = np.full((size + 1, len(known), len(known)), inf)  # B
    once = np.array([times.once_ns(r) for r in known], dtype=np.float64)
    rest[size] = back + once
    begun = np.full((size, len(known), len(known)), inf)  # q begins at i, and then B
    for i in reversed(range(size)):
        clock.check()
        begun[i] = (intervals[:, i, i + 1 :, None] + rest[i + 1 :].transpose(1, 0, 2)).min(axis=1)
        onwards = (between[:, :, None] + begun[i][None]).min(axis=1)
        by_anchor = back + intervals[:, i, size] + once
        np.fill_diagonal(by_anchor, inf)
        rest[i] = np.minimum(onwards, by_anchor)
    out = np.array([[times.out_ns(r, q) for r in known] for q in known], dtype=np.float64)
    alone = intervals[:, 0, size] + once
    return float(min((out + begun[0]).min(), alone.min()))


def _intervals(times: MixedTimes, clock: Clock) -> Times:
    """[strategy, i, j] time of atoms i .. j - 1, added up atom by atom."""
    size = len(times.problem.atoms)
    found = np.full((len(times.strategies), size + 1, size + 1), inf)
    for q, own in enumerate(times.strategies):
        for j in range(size):
            clock.check()
            for i, ns in zip(range(j, -1, -1), own.growing_ns(range(j, -1, -1)), strict=False):
                found[q, i, j + 1] = ns
    return found


def least_tour_ns(times: MixedTimes, claimed_ns: float, clock: Clock) -> float:
    """No tour in any order, with one group a strategy, is faster; inf if there is none.

    No less than claimed if that is shown.
    """
    fitting = [own.fits for own in times.strategies]
    ways = 1
    for of_atom in zip(*fitting, strict=True):
        ways *= sum(of_atom)
        if ways > MOST_ASSIGNMENTS:
            return _from_below(times, claimed_ns, clock)
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
    """Least time of all switches of a step that uses these, and of its anchor; of many, a bound."""
    known = range(len(times.strategies))
    if len(used) > MOST_TOUR:
        into, out_of = zip(*(_least_hops_ns(times, q) for q in used), strict=True)
        return float(max(sum(into), sum(out_of))) + min(map(times.once_ns, known))
    paths, full = _paths(times, used, clock), (1 << len(used)) - 1
    out = np.array([[times.out_ns(r, q) for q in used] for r in known], dtype=np.float64)
    back = np.array([[times.back_ns(q, r) for q in used] for r in known], dtype=np.float64)
    once = np.array([times.once_ns(r) for r in known], dtype=np.float64)[:, None, None]
    least = float((once + out[:, :, None] + paths[full] + back[:, None, :]).min())
    for n, own in enumerate(used):  # the anchor runs last, its way back before that
        ends = out[own][:, None] + paths[full ^ 1 << n] + back[own]
        least = min(least, times.once_ns(own) + float(ends.min()))
    return least


def _paths(times: MixedTimes, used: Sequence[int], clock: Clock) -> Times:
    """[bits, a, b] least time of all switches from a to b through those whose bits are set."""
    between = np.array([[times.between_ns(a, b) for b in used] for a in used], dtype=np.float64)
    paths = np.full((1 << len(used), len(used), len(used)), inf)
    for n in range(len(used)):
        paths[1 << n, n, n] = 0
    for seen in range(1, 1 << len(used)):
        clock.check()
        for c in range(len(used)):
            if not seen >> c & 1:
                onwards, more = (paths[seen] + between[:, c]).min(axis=1), seen | 1 << c
                paths[more, :, c] = np.minimum(paths[more, :, c], onwards)
    return paths


def _least_hops_ns(times: MixedTimes, strategy: int) -> tuple[float, float]:
    """Least of all ways into a strategy from another one, and of all out of it."""
    others = [q for q in range(len(times.strategies)) if q != strategy]
    ways = (times.out_ns, times.between_ns, times.back_ns)
    into = min((way(q, strategy) for q in others for way in ways), default=inf)
    return into, min((way(strategy, q) for q in others for way in ways), default=inf)


def _from_below(times: MixedTimes, claimed_ns: float, clock: Clock) -> float:
    """The least of f[U] and a tour of U over all U that may be below the claim."""
    count = len(times.strategies)
    if count > MOST_STRATEGIES:
        return 0
    sums = _opened(times, clock)
    hops = np.zeros((2, 1))
    for q in range(count):
        more = hops + np.array(_least_hops_ns(times, q))[:, None]
        hops = np.concatenate([hops, more], axis=1)
    hops[:, [1 << q for q in range(count)]] = 0
    lower = sums + hops.max(axis=0) + min(map(times.once_ns, range(count)))
    least, trials = inf, MOST_TRIALS
    for chosen in np.argsort(lower):
        if lower[chosen] >= min(least, claimed_ns):
            return min(least, max(claimed_ns, float(lower[chosen])))
        used = [q for q in range(count) if chosen >> q & 1]
        tour_ns = best_tour_ns(times, used, clock)
        own_ns = float(sums[chosen]) + tour_ns
        if own_ns < min(least, claimed_ns):
            search = Assignments(times, used, claimed_ns - tour_ns, trials, clock)
            if not search.none_is_below():
                least = own_ns
            trials = search.trials
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
