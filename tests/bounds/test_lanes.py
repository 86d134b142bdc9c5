"""Places of lanes, and how they are dealt out: by hand and against all dealings."""

from itertools import product

import numpy as np

from formulations.costs.placement import Placer
from solver.bounds.lanes import Counts, LanePlaces, dealt, lane_places, needed, together
from solver.graph.problem import Array, Intervals
from tests.equal_nodes import equal_nodes

SHARES: dict[Counts, int] = {(0, 3): 2, (1, 2): 5, (2, 1): 6, (3, 0): 7}


def test_best_dealing_of_places() -> None:
    """Three lanes, four fast places: 1 + 1 + 2 give 5 + 5 + 6; no other way gives more."""
    every = [
        [*chosen]
        for chosen in product(SHARES, repeat=3)
        if sum(counts[0] for counts in chosen) == 4
    ]
    assert max(sum(SHARES[counts] for counts in chosen) for chosen in every) == 16
    two: dict[Counts, Array] = {
        counts: np.array([share, share - 2]) for counts, share in SHARES.items()
    }
    # Less 2 each a lane without a fast place has nothing, which is no lane: 3 + 3 + 4.
    assert together(two, 3, (4, 5)).tolist() == [16, 10]
    chosen = dealt(SHARES, 3, (4, 5))
    assert sorted(chosen) == [(1, 2), (1, 2), (2, 1)]


def test_a_lane_has_to_do_what_the_others_cannot() -> None:
    """For 15 in all: beside a lane with 2 fast places the others have 2, with 5 + 5 or 2 + 6.

    So it needs 5 of its 6. One with 1 leaves 3: 5 + 6, it needs 4. One with 3 leaves 1: 2 + 5, it
    would need 8 of 7. One with 0 leaves 4: 6 + 6 or 5 + 7, it would need 3 of 2.
    """
    assert needed(SHARES, 3, (4, 5), 15) == {(1, 2): 4, (2, 1): 5}
    assert needed({}, 3, (4, 5), 15) == {}
    assert together({(1, 0): np.array([4])}, 2, (3, 0))[0] < 0  # two places are not three


def test_counts_of_a_lane_are_all_ways_to_divide_its_places() -> None:
    """Three stages on 4 + 5 places; where zones part them, two lanes have equally many of each."""
    places = LanePlaces(3, 1, 3, ((0,), (1,)), (4, 5))
    assert list(places.counts()) == [(0, 3), (1, 2), (2, 1), (3, 0)]
    zoned = LanePlaces(2, 1, 3, ((0,), (1,)), (4, 2), parted=((0,), (1,)))
    assert list(zoned.counts()) == [(2, 1)]


def test_places_of_a_lane_of_whole_nodes() -> None:
    """Three nodes of four slots, lanes four wide."""
    tables = equal_nodes(nodes=3, gpus=4, tp=1, dp=4, pp=3)
    assert lane_places(Intervals(tables), Placer(tables), split=False).there == (3,)
