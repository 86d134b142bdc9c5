"""Figures that cannot be meant, refused before they leave the range of 64-bit integers.

Sums over layers, micro-batches and stages then stay below 2^63 with room to spare.
"""

from formulations.errors import InstanceError

_NS_PER_DAY = 86_400 * 10**9
_MOST_NS = 400 * _NS_PER_DAY
_MOST_BYTES = 1 << 60


def check_step(time_ns: float, where: str, what: str) -> None:
    """Returns if `what` may take this long for one step; InstanceError if not."""
    if not time_ns <= _MOST_NS:
        found = f"{what} needs {time_ns / _NS_PER_DAY:.3g} days for one step"
        allowed = "at most 400 days: a smaller workload, or faster GPUs and links"
        raise InstanceError(where, found, allowed)


def check_memory(size_bytes: float, where: str) -> None:
    """Returns if a step may keep this many bytes in all; InstanceError if not."""
    if not size_bytes <= _MOST_BYTES:
        found = f"{size_bytes / (1 << 50):.3g} PiB for one replica and all sequences of a step"
        raise InstanceError(where, found, "at most 1024 PiB: a smaller workload")
