"""Places of lanes, and how they are dealt out: by hand, against all dealings, and recorded."""

from itertools import product

import numpy as np

from formulations.costs.placement import Placer
from solver.bounds import lanes
from solver.graph.placements import StageZones
from solver.graph.problem import Array, Intervals
from tests.graph.drawn import drawn_tables, figures, uneven_tables
from tests.random_configs import wide_zones
from tests.recorded import Cases, digest, recorded, summary

SHARES: dict[lanes.Counts, int] = {(0, 3): 2, (1, 2): 5, (2, 1): 6, (3, 0): 7}


def test_best_dealing_of_places() -> None:
    """Three lanes, four fast places: 1 + 1 + 2 give 5 + 5 + 6; no other way gives more."""
    every = [
        [*chosen]
        for chosen in product(SHARES, repeat=3)
        if sum(counts[0] for counts in chosen) == 4
    ]
    assert max(sum(SHARES[counts] for counts in chosen) for chosen in every) == 16
    two: dict[lanes.Counts, Array] = {
        counts: np.array([share, share - 2]) for counts, share in SHARES.items()
    }
    # Less 2 each a lane without a fast place has nothing, which is no lane: 3 + 3 + 4.
    assert lanes.together(two, 3, (4, 5)).tolist() == [16, 10]
    assert sorted(lanes.dealt(SHARES, 3, (4, 5))) == [(1, 2), (1, 2), (2, 1)]


def test_a_lane_has_to_do_what_the_others_cannot() -> None:
    """For 15 in all: beside a lane with 2 fast places the others have 2, with 5 + 5 or 2 + 6.

    So it needs 5 of its 6. One with 1 leaves 3: 5 + 6, it needs 4. One with 3 leaves 1: 2 + 5, it
    would need 8 of 7. One with 0 leaves 4: 6 + 6 or 5 + 7, it would need 3 of 2.
    """
    assert lanes.needed(SHARES, 3, (4, 5), 15) == {(1, 2): 4, (2, 1): 5}
    assert lanes.needed({}, 3, (4, 5), 15) == {}
    # One class: the other lane has its 4 of 7.
    assert lanes.needed({(3,): 4}, 2, (6,), 7) == {(3,): 3}
    assert lanes.dealt({(3,): 4}, 2, (6,)) == [(3,), (3,)]
    assert lanes.together({(1, 0): np.array([4])}, 2, (3, 0))[0] < 0  # two places are not three
    zoned = lanes.lane_counts(3, 2, (4, 2), ((0,), (1,)))
    assert list(zoned) == [(2, 1)]  # two lanes have equally many of each zone


@recorded("lanes")
def test_lanes_are_the_recorded_ones() -> Cases:
    """Of stages that may span zones, and, below no step time, of such that may not."""
    uneven = {f"uneven {n} {one}": uneven_tables(n, one > 0) for n in range(10) for one in (0, 1)}
    plain = {name: costs for name, costs in drawn_tables().items() if costs.config.vpp == 1}
    plain |= {f"wide {seed}": wide_zones(seed) for seed in (10, 11)}
    for (name, costs), below_ns in product((plain | uneven).items(), (None, 0)):
        intervals, placer, cutoff = Intervals(costs), Placer(costs), costs.longest_ns // 2
        split = StageZones(placer).split_by(below_ns)
        if below_ns == 0 and not split:
            continue
        lane = lanes.Lane(intervals, placer, split)
        counts, pp = list(lane.counts()), costs.config.pp
        most = [lane.most(each, cutoff) for each in counts]
        hosts = tuple(range(len(lane.classes)))[:2]
        layers, last = (intervals.allowed,) * pp, counts[-1:]
        problems = [
            figures(lane.problem(c, layers, (on,) * pp, 2)) for on in (None, hosts) for c in last
        ]
        work = [most, lane.least_ns(7), lane.exact, lane.num_edges]
        told = [lane.there, work, digest(summary([counts, lane.room])), problems]
        yield f"{name}{', split' * (below_ns == 0)}", told
