"""From lengths, or a distribution of them, to classes with a number of sequences in a step.

Every length counts as the longest of its class, and where shares make no whole numbers, as one of
the next class: no step of as many sequences drawn evenly is judged shorter than it is.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil, exp, floor, log
from statistics import NormalDist

from formulations.instance.lengths import LengthClass

#: Halvings of the interval in which the least ratio of lengths in a class lies.
_HALVINGS = 50


def classes_of(
    counts: Mapping[int, int], num_classes: int, sequences: int | None = None
) -> tuple[LengthClass, ...]:
    """At most so many classes of `sequences` that are distributed as `counts`.

    counts: of every length, ascending. sequences: all of them if it is not given. The largest
    ratio of two lengths in a class is the least that there is.
    """
    lengths = list(counts)
    below = list(accumulate(counts.values(), initial=0))
    uppers = _uppers(lengths, num_classes)
    shares = [below[bisect_left(lengths, upper) + 1] for upper in uppers]
    number = below[-1] if sequences is None else sequences
    return _classes(uppers, [number * share // below[-1] for share in shares])


def log_normal_classes(
    median: int, sigma: float, longest: int, sequences: int, num_classes: int
) -> tuple[LengthClass, ...]:
    """The same of a log-normal distribution that is cut off at the longest length."""
    normal = NormalDist(log(median), sigma)
    shortest = min(longest, max(1, floor(exp(normal.inv_cdf(1 / (2 * sequences))))))
    ratio = (longest / shortest) ** (1 / num_classes)
    inner = {ceil(shortest * ratio**i) for i in range(1, num_classes)}
    uppers = [*sorted(upper for upper in inner if upper < longest), longest]
    below = [floor(sequences * normal.cdf(log(upper))) for upper in uppers[:-1]]
    return _classes(uppers, [*below, sequences])


def _classes(uppers: Iterable[int], below: Iterable[int]) -> tuple[LengthClass, ...]:
    """Of the sequences up to every upper length, those that are in no shorter class."""
    pairs, found, before = zip(uppers, below, strict=True), [], 0
    for upper, number in pairs:
        if number > before:
            found.append(LengthClass(tokens=upper, count=number - before))
            before = number
    return tuple(found)


def _uppers(lengths: list[int], num_classes: int) -> list[int]:
    """The longest length of every class, ascending."""
    if len(lengths) <= num_classes:
        return lengths
    low, high = 1.0, lengths[-1] / lengths[0] + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if len(_greedy(lengths, middle)) > num_classes:
            low = middle
        else:
            high = middle
    return _greedy(lengths, high)[::-1]


def _greedy(lengths: list[int], ratio: float) -> list[int]:
    """The fewest uppers, descending, of classes whose lengths differ by less than the ratio."""
    found, end = [], len(lengths)
    while end:
        found.append(lengths[end - 1])
        end = bisect_left(lengths, floor(lengths[end - 1] / ratio) + 1, 0, end - 1)
    return found
