"""Node orders, splits and shares near other ones, and those to start from."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, islice, pairwise, permutations
from random import Random

import numpy as np

from formulations.costs.tables import Array
from solver.heuristics.balance import Kinds, Order, Split
from solver.heuristics.node_orders import count_orders, node_orders

#: Orders of the runs that are tried; up to so many orders of the nodes all are tried.
MOST_STARTS = 24
FEW_ORDERS = 60


def start_orders(nodes_used: Sequence[int]) -> list[Order]:
    """Every group in one run, the runs in every order."""
    used = [j for j, count in enumerate(nodes_used) if count]
    orders = islice(permutations(used), MOST_STARTS)
    return [tuple(j for j in order for _ in range(nodes_used[j])) for order in orders]


def turned_orders(nodes_used: Sequence[int], per_stage: int, max_turns: int) -> list[Order]:
    """All orders if they are few; else the start orders, begun at `max_turns` stages at most.

    per_stage: nodes that a stage takes, at least 1.
    """
    if count_orders(nodes_used) <= FEW_ORDERS:
        return list(node_orders(nodes_used, FEW_ORDERS))
    step = max(per_stage, -(-sum(nodes_used) // max_turns))
    starts = start_orders(nodes_used)
    turned = (order[i:] + order[:i] for order in starts for i in range(0, len(order), step))
    return list(dict.fromkeys(turned))


def _swapped(order: Order, i: int, j: int, size: int) -> Order:
    """Two blocks of `size` nodes exchanged; i + size <= j."""
    first, second = order[i : i + size], order[j : j + size]
    return order[:i] + second + order[i + size : j] + first + order[j + size :]


def near_orders(order: Order, per_stage: int, random: Random) -> Iterator[Order]:
    """Without end: orders with two nodes, two blocks or one block moved, or turned round.

    Blocks are as long as a stage or a run of equal nodes; they start at stages or runs.
    """
    size = len(order)
    runs = [0]
    for _, run in groupby(order):
        runs.append(runs[-1] + len(list(run)))
    marks = sorted({*runs[:-1], *range(0, size, per_stage)})
    lengths = [1, per_stage, *(b - a for a, b in pairwise(runs))]
    while True:
        kind = random.random()
        length = min(random.choice(lengths), size)
        if kind < 0.45:
            i, j = sorted((random.randrange(size), random.randrange(size)))
            if order[i] != order[j]:
                yield _swapped(order, i, j, 1)
        elif kind < 0.7:
            i, j = sorted((random.choice(marks), random.choice(marks)))
            if i + length <= j and j + length <= size:
                yield _swapped(order, i, j, length)
        elif kind < 0.98:
            # a block taken out at i and put back at `to` of the rest
            i, to = (min(random.choice(marks), size - length) for _ in range(2))
            block, rest = order[i : i + length], order[:i] + order[i + length :]
            yield rest[:to] + block + rest[to:]
        else:
            yield order[::-1]


def near_splits(split: Array) -> Array:
    """[N, p + 1] splits in which one layer moved between two of the p stages."""
    p = len(split) - 1
    first, last = np.triu_indices(p, 1)
    inside = (np.arange(p + 1) > first[:, None]) & (np.arange(p + 1) <= last[:, None])
    moves = np.concatenate([split + inside, split - inside])
    return moves[(np.diff(moves, axis=1) > 0).all(axis=1)]


def permuted(before: Kinds, after: Kinds, split: Split) -> Split | None:
    """The split whose stages take their numbers of layers along; None if the kinds differ."""
    if sorted(before) != sorted(after):
        return None
    sizes: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for kinds, (start, end) in zip(before, pairwise(split), strict=True):
        sizes.setdefault(kinds, []).append(end - start)
    return tuple(accumulate((sizes[kinds].pop(0) for kinds in after), initial=0))


def fair_shares(stage_times: Array, micro_batches: int) -> tuple[int, ...]:
    """Shares, at least 1 each, of least largest estimate over the replicas.

    stage_times: [p, R] forward + backward of one micro-batch, per stage and replica. With m
    micro-batches a replica is taken to need all its stages once and m - 1 times its slowest.
    """
    latency, slowest = stage_times.sum(axis=0), stage_times.max(axis=0)
    times = range(int((latency + micro_batches * slowest).max()))
    enough = bisect_left(
        times, True, key=lambda ns: bool(_most(latency, slowest, ns).sum() >= micro_batches)
    )
    shares = _most(latency, slowest, enough)
    for _ in range(int(shares.sum()) - micro_batches):
        ends = np.where(shares > 1, latency + (shares - 1) * slowest, -1)
        shares[len(ends) - 1 - int(ends[::-1].argmax())] -= 1
    return tuple(shares.tolist())


def _most(latency: Array, slowest: Array, time_ns: int) -> Array:
    """[R] micro-batches that every replica finishes within the time; 1 at least."""
    micro_batches: Array = np.maximum(1, (time_ns - latency) // slowest + 1)
    return micro_batches
