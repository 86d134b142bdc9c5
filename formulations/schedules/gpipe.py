"""GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards."""

import numpy as np

from formulations.schedules.operations import Counts, Kind, Missed, Operation, Order


def order(
    num_devices: int, device: int, micro_batches: int, chunks: int = 1, group: int | None = None
) -> Order:
    """Forwards of all micro-batches, then their backwards."""
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        for i in range(micro_batches):
            yield Operation(kind, device, i)


def missed(
    p: Counts, stage: Counts, m: Counts, chunks: Counts, group: Counts | None = None
) -> tuple[Missed, ...]:
    """Nothing: every forward of a stage comes before any of its backwards.

    Micro-batch m - 1 goes down from stage k after all its forwards; on the last stage it is
    followed by B(0), which goes up to stage k, whose m backwards come before B(m - 1) goes up.
    """
    none = np.zeros_like(stage)
    return (Missed(none, none, none),)
