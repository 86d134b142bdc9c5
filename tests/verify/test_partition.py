"""Nodes dealt to lanes."""

from collections.abc import Callable
from itertools import product

import pytest

from solver.verify import partition
from solver.verify.partition import Dealing, Nodes, best_deal, deal


def test_best_deal() -> None:
    """Two lanes that take four nodes of each group: the better of 1 + 3 and 2 + 2."""
    most: dict[Nodes, int] = {(1, 3): 4, (2, 2): 6, (3, 1): 7}
    every = {
        (a, b): most[a] + most[b]
        for a, b in product(most, repeat=2)
        if (a[0] + b[0], a[1] + b[1]) == (4, 4)
    }
    assert max(every.values()) == 12
    assert deal(most, 2, (4, 4))[-1].tolist()[4] == 12
    assert best_deal(most, 2, (4, 4)) == [(2, 2), (2, 2)]
    assert best_deal({}, 1, (4, 4)) == []
    assert deal({(2,): 3}, 2, (4,))[-1].tolist() == 6  # of one group


def dealing(even: bool, work: list[int]) -> Dealing:
    """Six places of two groups for two lanes of three stages that do ten micro-batches."""
    return Dealing(
        places=(4, 2),
        number=2,
        pp=3,
        total=10,
        fewest=5 if even else 1,
        largest=5 if even else 9,
        even=even,
        work=work,
    )


def test_lanes_in_too_many_ways_are_not_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lanes, and 0 to 4 nodes of the first group: 10."""
    for most, few in ((10, True), (9, False)):
        monkeypatch.setattr(partition, "MOST_DEALT", most)
        assert dealing(True, [1, 1]).few == few


def test_most_by_nodes_are_found_by_halving() -> None:
    """With 3 micro-batches a node of the first group the best deals do 3 + 9 and 6 + 6.

    With 1 they do 1 + 3 and 2 + 2, and 10 are asked for.
    """

    def per_node(number: int) -> Callable[[Nodes, int], bool]:
        return lambda nodes, asked: asked <= number * nodes[0]

    most = dealing(False, [1, 1]).most_by_nodes(per_node(3), {})
    assert most == {(1, 2): 3, (2, 1): 6, (3, 0): 9}
    assert dealing(False, [1, 1]).most_by_nodes(per_node(1), {}) is None


@pytest.mark.parametrize(("even", "weights"), [(True, (1, 0)), (False, (24, 12))])
def test_weights_of_the_light_lane(even: bool, weights: Nodes) -> None:
    """The fastest group alone, or twice as much for half of the work; of one group none."""
    assert dealing(even, [5, 10]).weights == weights
    assert Dealing((4, 0), 2, 2, 10, 1, 9, even, [5, 10]).weights is None


def test_some_lane_is_in_the_ranges_of_the_light_one() -> None:
    """Of two lanes of weights w and W - w, one has s W >= S w; even, one weighs W / 2 or less."""
    assert dealing(True, [1, 1]).ranges((1, 0)) == [(0, 2, 5)]
    ranges = dealing(False, [1, 1]).ranges((24, 12))  # all nodes weigh 120, a lane 36 to 72
    assert [low for low, _, _ in ranges] == [36, *(high + 1 for _, high, _ in ranges[:-1])]
    assert ranges[-1][1] == 72
    for low, _, fewest in ranges:
        assert fewest * 120 >= 10 * low > (fewest - 1) * 120
