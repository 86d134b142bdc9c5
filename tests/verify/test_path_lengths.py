"""Shortest ways through the choices of devices, against all ways."""

import numpy as np

from tests.recorded import Cases, digest, recorded, summary
from tests.verify.lanes import Lane


@recorded("verify_path_lengths")
def test_lengths_are_as_recorded() -> Cases:
    """Of members, what they add to the latency, and how often a device is busy in a time."""
    for lane in map(Lane, range(12)):
        shortest, parts = lane.lane(lane.choices, 0), list[object]()
        for k in range(len(lane.steps)):
            members = lane.members(k)
            lengths = shortest.lengths(k, members)
            parts += [lengths, shortest.added(k, members), shortest.busiest(k, 10**9)]
            parts += [shortest.within(k, members, int(np.median(lengths)))]
        yield f"lane {lane.seed}", digest(summary(parts))
