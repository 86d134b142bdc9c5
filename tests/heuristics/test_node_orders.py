"""Node orders that are tried."""

from itertools import permutations

import pytest

from solver.heuristics.node_orders import count_orders, node_orders


@pytest.mark.parametrize("nodes_used", [(1,), (3,), (1, 3), (2, 2), (0, 2), (1, 2, 2)])
def test_all_distinct_orders_are_given_in_lexicographic_order(nodes_used: tuple[int, ...]) -> None:
    """Equal to the sorted set of all permutations."""
    listed = [j for j, count in enumerate(nodes_used) for _ in range(count)]
    expected = sorted(set(permutations(listed)))
    assert list(node_orders(nodes_used, 1000)) == expected
    assert count_orders(nodes_used) == len(expected)


def test_one_fast_node_among_three_has_four_places() -> None:
    """FASOP's hetero cluster: the A100 node first, second, third or last."""
    expected = [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)]
    assert list(node_orders((1, 3), 4)) == expected


def test_above_the_limit_orders_are_rotations_and_groups_at_an_end() -> None:
    """2 + 2 + 2 nodes have 90 orders; the 10 below are left of them, see the comment."""
    found = list(node_orders((2, 2, 2), 89))
    # 6 rotations of 001122 and of 221100 each; group 1 first or last adds 11 0022, 11 2200,
    # 0022 11, 2200 11, of which 112200 and 220011 are rotations; the others are rotations too.
    forward = {(0, 0, 1, 1, 2, 2), (0, 1, 1, 2, 2, 0), (1, 1, 2, 2, 0, 0)}
    forward |= {(1, 2, 2, 0, 0, 1), (2, 2, 0, 0, 1, 1), (2, 0, 0, 1, 1, 2)}
    assert set(found) == forward | {order[::-1] for order in forward}
    assert found == sorted(found)


def test_four_groups_above_the_limit_have_every_group_first_and_last() -> None:
    """Group 1 of 0, 1, 2, 3 in front of 0 2 3: not a rotation."""
    found = set(node_orders((1, 1, 1, 1), 23))
    assert {(1, 0, 2, 3), (0, 2, 3, 1), (1, 3, 2, 0), (3, 2, 0, 1)} <= found
    assert len(found) <= 2 * 4 + 4 * 4
