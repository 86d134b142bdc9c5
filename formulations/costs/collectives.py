"""Seconds of point-to-point and collective communication.

Ring collectives move factor * (n - 1) / n * S bytes per rank in factor * (n - 1) steps, with
factor 2 for all-reduce and 1 for reduce-scatter or all-gather (Cheng et al. 2024, section 3;
Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002).
"""

import numpy as np
from numpy.typing import NDArray

from formulations.instance.machines import Link

ALL_REDUCE = 2
HALF = 1  # reduce-scatter, or all-gather


def ring_share(factor: float, ranks: int) -> float:
    """Bytes that each rank sends per byte of the buffer."""
    return factor * (ranks - 1) / ranks


def ring_latency_s(factor: float, ranks: int, latency_s: float) -> float:
    """Seconds of start-up of all steps of a ring."""
    return factor * (ranks - 1) * latency_s


def ring_s(factor: int, ranks: int, size_bytes: float, link: Link) -> float:
    """Seconds of a ring collective over one link type, not shared."""
    transfer_s = ring_share(factor, ranks) * size_bytes / link.bandwidth_bytes_per_s
    return transfer_s + ring_latency_s(factor, ranks, link.latency_s)


def wire_ns(size_bytes: NDArray[np.int64], s_per_byte: float) -> NDArray[np.int64]:
    """Nanoseconds of every size, rounded up one by one so that stages are sums of layers."""
    exact = size_bytes.astype(np.float64) * (s_per_byte * 1e9 * (1 - 1e-12))
    return np.ceil(exact).astype(np.int64)
