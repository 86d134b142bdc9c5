"""Micro-batches of every pipeline, exactly: least longest step, or least variance of the steps.

`times[r][m - 1]` is the step of pipeline r with m micro-batches, nondecreasing in m and given up to
as many as it may have; every pipeline gets at least one. Jang et al. (Oobleck, SOSP 2023,
section 4.2.2) minimise the variance of the steps; the longest step is what training waits for.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import accumulate
from math import isqrt
from typing import Literal

from formulations.errors import NoPlanError

#: How micro-batches are shared out: the slowest pipeline is as fast as can be, or the steps have
#: least variance, as in Oobleck.
Distribution = Literal["step-time", "variance"]
Times = Sequence[int]


def _check(times: Sequence[Times], total: int) -> None:
    room = sum(map(len, times))
    if not len(times) <= total <= room:
        raise NoPlanError(
            f"{total} micro-batches for {len(times)} pipelines; allowed: {len(times)} to {room}, "
            "one for every pipeline and no more than each may have"
        )


def shortest(times: Sequence[Times], total: int) -> tuple[int, ...]:
    """Shares that sum to `total` and make the longest step as short as possible.

    Bisection on the step T: pipelines can take sum over r of (largest m with times[r][m - 1] <= T)
    in time T, which grows with T; any total between their number and that sum can be reached.
    What is too many is taken from the pipeline that is slowest at the time. Raises NoPlanError.
    """
    _check(times, total)

    def shares_within(step: int) -> list[int]:
        return [bisect_right(steps, step) for steps in times]

    low, high = max(steps[0] for steps in times), max(steps[-1] for steps in times)
    low += bisect_left(range(low, high), True, key=lambda step: sum(shares_within(step)) >= total)
    shares = shares_within(low)
    slowest = [(-times[r][m - 1], -r) for r, m in enumerate(shares) if m > 1]
    heapify(slowest)
    for _ in range(sum(shares) - total):
        r = -slowest[0][1]
        shares[r] -= 1
        heapreplace(slowest, (-times[r][shares[r] - 1] if shares[r] > 1 else 1, -r))
    return tuple(shares)


@dataclass(frozen=True)
class _Line:
    """Shares with the sums of their steps and of the squares: a line in `least_variance`."""

    shares: tuple[int, ...]
    first: int
    second: int

    def at(self, center: Fraction) -> Fraction:
        """Sum over r of (T_r - center)^2, less the constant R center^2."""
        return self.second - 2 * center * self.first

    def spread(self) -> int:
        """R^2 times the variance."""
        return len(self.shares) * self.second - self.first**2


def _line(times: Sequence[Times], shares: tuple[int, ...]) -> _Line:
    steps = [each[m - 1] for each, m in zip(times, shares, strict=True)]
    return _Line(shares, sum(steps), sum(step * step for step in steps))


def _closest(times: Sequence[Times], total: int, center: Fraction, line: _Line) -> _Line:
    """Shares with the least sum of (T_r - center)^2; `line` is one way, and a cutoff.

    No term of a better way exceeds the sum of `line`, which leaves few counts a pipeline; dynamic
    programming over the micro-batches given out.
    """
    q, p = center.denominator, center.numerator
    cutoff = sum((q * steps[m - 1] - p) ** 2 for steps, m in zip(times, line.shares, strict=True))
    # Fewest and most micro-batches that pipelines r, r + 1, ... take together.
    fewest = range(len(times), -1, -1)
    room = [*accumulate(map(len, reversed(times)), initial=0)][::-1]
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for r, steps in enumerate(times):
        # Counts m with (q T(m) - p)^2 <= cutoff; T is nondecreasing.
        squares = [(m, (q * step - p) ** 2) for m, step in enumerate(steps, start=1)]
        close = [(m, square) for m, square in squares if square <= cutoff]
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for given, (cost, shares) in best.items():
            for m, square in close:
                after, sum_ = given + m, cost + square
                if sum_ > cutoff or not fewest[r + 1] <= total - after <= room[r + 1]:
                    continue
                if after not in following or sum_ < following[after][0]:
                    following[after] = (sum_, (*shares, m))
        best = following
    return _line(times, best[total][1])


def least_variance(times: Sequence[Times], total: int) -> tuple[int, ...]:
    """Shares that sum to `total` and make the variance of the steps least. Raises NoPlanError.

    The variance times R is the least over c of sum (T_r - c)^2, reached at the mean. For a fixed c
    that sum separates over pipelines (`_closest`). Less R c^2 it is linear in c for each way to
    share, so its least over the ways, g(c), is concave: between two known points it lies above
    their chord, and chord + R c^2 bounds every variance whose mean lies there. Where two lines
    that are optimal at the ends meet, g is asked again, until a line or the bound settles the
    stretch (Eisner and Severance, Mathematical techniques for efficient record segmentation,
    J. ACM 23, 1976). The first stretch: any way has a step >= T and a step <= T, where T is the
    longest of `shortest`; with less variance than that, both are within D of the mean, D^2 being
    the sum of (T_r - mean)^2 there.
    """
    _check(times, total)
    start = _line(times, shortest(times, total))
    longest = max(steps[m - 1] for steps, m in zip(times, start.shares, strict=True))
    reach = isqrt(start.spread() // len(times)) + 1
    low, high = Fraction(longest - reach), Fraction(longest + reach)
    ends = [(c, _closest(times, total, c, start)) for c in (low, high)]
    best = min((start, *(line for _, line in ends)), key=_Line.spread)
    stretches, count = [(ends[0], ends[1])], len(times)
    while stretches:
        (low, below), (high, above) = stretches.pop()
        if below.first == above.first:
            continue
        # R^2 times the variance where the mean lies in [low, high]: least of chord + R c^2
        slope = (above.at(high) - below.at(low)) / (high - low)
        center = min(max(-slope / (2 * count), low), high)
        if count * (below.at(low) + slope * (center - low) + count * center**2) >= best.spread():
            continue
        center = Fraction(above.second - below.second, 2 * (above.first - below.first))
        middle = _closest(times, total, center, best)
        best = min(best, middle, key=_Line.spread)
        if middle.at(center) < below.at(center):
            stretches += [((low, below), (center, middle)), ((center, middle), (high, above))]
    return best.shares
