"""Micro-batches per replica so that all replicas of a split finish at about the same time."""

import numpy as np

from formulations.costs.tables import Array

#: Replicas that give, and that take, a micro-batch.
MOVED = 3


def fair_shares(stage_times: Array, micro_batches: int) -> tuple[int, ...]:
    """Shares, at least 1 each, of least largest estimate over the replicas.

    stage_times: [p, R] forward + backward of one micro-batch, per stage and replica. With m
    micro-batches a replica is taken to need all its stages once and m - 1 times its slowest.
    """
    latency, slowest = stage_times.sum(axis=0), stage_times.max(axis=0)
    low, high = 0, int((latency + micro_batches * slowest).max())
    while low < high:
        middle = (low + high) // 2
        if _most(latency, slowest, middle).sum() >= micro_batches:
            high = middle
        else:
            low = middle + 1
    shares = _most(latency, slowest, low)
    for _ in range(int(shares.sum()) - micro_batches):
        ends = np.where(shares > 1, latency + (shares - 1) * slowest, -1)
        shares[len(ends) - 1 - int(ends[::-1].argmax())] -= 1
    return tuple(shares.tolist())


def near_shares(stage_times: Array, shares: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shares with one micro-batch moved from a replica that ends late to one that ends early.

    By the estimate of `fair_shares`; of replicas that look alike one, and `MOVED` on each side.
    """
    counts = np.array(shares)
    ends = stage_times.sum(axis=0) + (counts - 1) * stage_times.max(axis=0)
    alike = np.unique(np.vstack([counts, stage_times]), axis=1, return_index=True)[1]
    ranked = alike[np.argsort(ends[alike], kind="stable")]
    found = []
    for source in [r for r in ranked[::-1] if counts[r] > 1][:MOVED]:
        for target in ranked[:MOVED]:
            if source != target:
                moved = counts.copy()
                moved[source] -= 1
                moved[target] += 1
                found.append(tuple(moved.tolist()))
    return found


def _most(latency: Array, slowest: Array, time_ns: int) -> Array:
    """[R] micro-batches that every replica finishes within the time; 1 at least."""
    most: Array = np.maximum(1, (time_ns - latency) // slowest + 1)
    return most
