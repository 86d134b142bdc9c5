"""Shortest ways through the choices of devices, against all ways."""

import numpy as np
import pytest

from solver.verify.families import BACK, THERE
from tests.recorded import Cases, digest, recorded, summary
from tests.verify.lanes import Lane


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_no_way_to_or_from_a_choice_is_shorter(seed: int) -> None:
    lane = Lane(seed)
    shortest = lane.lane(lane.choices, 0)
    for visits, back in ((THERE, False), (BACK, False), (BACK, True)):
        pairs = zip(shortest.passed(visits, back), lane.ways, strict=True)
        passed = np.stack([times[way] for times, way in pairs])
        for k, way in enumerate(lane.ways):
            for choice in np.unique(way):
                ways = passed[:, way == choice]
                assert shortest.before(visits, back)[k][choice] == ways[:k].sum(axis=0).min()
                if not back:
                    assert shortest.after(visits)[k][choice] == ways[k + 1 :].sum(axis=0).min()


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
