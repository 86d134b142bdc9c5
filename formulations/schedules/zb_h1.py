"""ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1).

The backward pass is split: B gives the gradient of the input, on which the stage before waits, W
those of the weights, which only the optimizer waits for. Stage k runs 1F1B with B alone; from the
k-th micro-batch on each B is followed by the oldest W, so that k of them are put off at most, and
fill the bubble at the end. So p micro-batches are unfinished at most on every stage, as many as on
the first stage of 1F1B. Bubble of equal stages without transfers: (p - 1)(F + B - W).
"""

import numpy as np

from formulations.schedules.operations import Counts, Kind, Missed, Operation, Order


def order(
    num_devices: int, device: int, micro_batches: int, chunks: int = 1, group: int | None = None
) -> Order:
    """Warm-up, then F, B and W in turn, cool-down with B and W in turn, and the W put off."""
    m, warm = micro_batches, min(num_devices - 1 - device, micro_batches)
    done = 0
    for i in range(warm):
        yield Operation(Kind.FORWARD, device, i)
    for i in range(m):
        if warm + i < m:
            yield Operation(Kind.FORWARD, device, warm + i)
        yield Operation(Kind.BACKWARD, device, i)
        if i >= min(device, m - warm) and done <= i:
            yield Operation(Kind.WEIGHT, device, done)
            done += 1
    for i in range(done, m):
        yield Operation(Kind.WEIGHT, device, i)


def missed(
    p: Counts, stage: Counts, m: Counts, chunks: Counts, group: Counts | None = None
) -> tuple[Missed, ...]:
    """Those of 1F1B, and the weight gradients that are put off meanwhile.

    One micro-batch through all stages counts no weight gradients. Before the last backward of a
    stage min(k, m - 1, m - p + 1 + k) of them, but no less than 0, are put off; on the way
    down w more are still to come.
    """
    warm = np.minimum(p - 1 - stage, m - 1)
    put_off = np.minimum(np.minimum(stage, m - 1), np.maximum(m - (p - 1 - stage), 0))
    none = np.zeros_like(warm)
    late = np.minimum(warm + put_off, m - 1)
    return Missed(warm, none, put_off), Missed(none, warm, late)
