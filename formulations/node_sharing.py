"""How the GPUs of one node may be shared among stages; quick to import.

`aligned`: powers of two at offsets that are multiples of themselves, as links inside a node are
laid out; `any`: all numbers of GPUs in every order.
"""

from collections.abc import Collection
from enum import StrEnum


class NodeSplit(StrEnum):
    """Which stages may share a node."""

    ALIGNED = "aligned"
    ANY = "any"


def is_power_of_two(count: int) -> bool:
    """Whether a number of GPUs is one, two, four, ..."""
    return count & (count - 1) == 0


def may_start(split: NodeSplit, gpus: int, offset: int) -> bool:
    """Whether a stage of so many GPUs may start at this GPU of its node."""
    return split is NodeSplit.ANY or offset % gpus == 0


def filled(gpus: int, degrees: Collection[int], split: NodeSplit) -> int:
    """Largest number of GPUs of a node, at most `gpus`, that stages can fill; 0 if none."""
    ends = {0}
    for end in range(1, gpus + 1):
        if any(g <= end and end - g in ends and may_start(split, g, end - g) for g in degrees):
            ends.add(end)
    return max(ends)
