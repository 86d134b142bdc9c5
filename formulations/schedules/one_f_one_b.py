"""1F1B (PipeDream, Narayanan et al., SOSP 2019): one forward, one backward, in turn.

Stage k of p first runs w = min(p - 1 - k, m) forwards, then pairs F(w + i), B(i), then the
remaining backwards; so it holds min(p - k, m) micro-batches at most.
"""

import numpy as np

from formulations.schedules.operations import Counts, Kind, Missed, Operation, Order


def order(
    num_devices: int, device: int, micro_batches: int, chunks: int = 1, group: int | None = None
) -> Order:
    """Warm-up, pairs, cool-down."""
    warm = min(num_devices - 1 - device, micro_batches)
    for i in range(warm):
        yield Operation(Kind.FORWARD, device, i)
    for i in range(micro_batches - warm):
        yield Operation(Kind.FORWARD, device, warm + i)
        yield Operation(Kind.BACKWARD, device, i)
    for i in range(micro_batches - warm, micro_batches):
        yield Operation(Kind.BACKWARD, device, i)


def missed(
    p: Counts, stage: Counts, m: Counts, chunks: Counts, group: Counts | None = None
) -> tuple[Missed, ...]:
    """W = min(p - 1 - k, m - 1) forwards, or as many backwards.

    After micro-batch 0 came back to B(k, 0), what is left on stage k: all but w + 1 forwards. Or
    all of stage k up to F(k, m - 1), all but w + 1 backwards, then micro-batch m - 1 down and back.
    """
    warm = np.minimum(p - 1 - stage, m - 1)
    none = np.zeros_like(warm)
    return Missed(warm, none, none), Missed(none, warm, none)
