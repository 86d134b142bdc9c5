"""Micro-batches per replica class that are worth trying.

A plan's step time is the largest over its replicas and grows with each share, so in one class all
replicas but the last few run the class's largest share. It is enough to try the least vectors of
largest shares that add up to all micro-batches: lowering any class by one would leave too few.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from formulations.units import ceil_div
from solver.graph.placements import ReplicaClass


def least_vectors(counts: Sequence[int], most: Sequence[int], total: int) -> Iterator[list[int]]:
    """Vectors of largest shares, 1 <= v_c <= most_c, that just cover `total` micro-batches."""
    if min(most) < 1:
        return
    lowest = []
    for c, count in enumerate(counts):
        others = sum(n * m for d, (n, m) in enumerate(zip(counts, most, strict=True)) if d != c)
        lowest.append(max(1, ceil_div(total - others, count)))
    ranges = [range(low, high + 1) for low, high in zip(lowest, most, strict=True)]
    for head in product(*ranges[:-1]):
        done = sum(n * v for n, v in zip(counts[:-1], head, strict=True))
        last = max(1, ceil_div(total - done, counts[-1]))
        vector = [*head, last]
        surplus = done + counts[-1] * last - total
        tight = all(v == 1 or surplus < n for n, v in zip(counts, vector, strict=True))
        if last <= most[-1] and tight:
            yield vector


def shares(classes: Sequence[ReplicaClass], vector: Sequence[int], total: int) -> tuple[int, ...]:
    """Micro-batches of every replica: the class's largest share, the surplus taken off again."""
    result = {r: v for one, v in zip(classes, vector, strict=True) for r in one.replicas}
    surplus = sum(result.values()) - total
    for r in sorted(result, key=lambda r: (-result[r], -r)):
        if surplus and result[r] > 1:
            result[r] -= 1
            surplus -= 1
    return tuple(result[r] for r in sorted(result))
