"""What a device does: forward, backward and, where a schedule splits it, weight gradients."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class Kind(IntEnum):
    """BACKWARD leaves the weight gradients to WEIGHT where a schedule splits the backward pass."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


class Operation(NamedTuple):
    """One operation of one micro-batch on a virtual stage: chunk c of device d is c p + d."""

    kind: Kind
    stage: int
    micro_batch: int


#: Operations of one device, in order.
Order = Iterator[Operation]


class Missed(NamedTuple):
    """What a latency path of stage k leaves out: forwards, backwards, weight gradients; counts.

    A latency path: one micro-batch through all stages, to the last and back, with all transfers,
    and beside it m - 1 operations of each kind on stage k, less what is missed. Its length is a
    lower bound of the time when the last backward of stage 0 ends, for every split.
    """

    forward: Counts
    backward: Counts
    weight: Counts
