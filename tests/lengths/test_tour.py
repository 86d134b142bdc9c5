"""Promises of formulations.lengths.tour: switches, figures of groups, the best single strategy."""

from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching
from formulations.lengths.tour import (
    Group,
    GroupFigures,
    Hop,
    Single,
    Tour,
    best_single,
    group_figures,
    hops,
    step_ns,
)
from tests.mixed_lengths import random_mixed, tour_ns

#: Parameters from a to b: 10 a + b; gradients 100 times as much.
OUT = tuple(tuple(10 * a + b for b in range(3)) for a in range(3))
SWITCHING = Switching(OUT, tuple(tuple(100 * ns for ns in row) for row in OUT))


def visits(anchor: int, *strategies: int) -> Tour:
    """One atom a group."""
    return Tour(anchor, tuple(Group(q, (k,)) for k, q in enumerate(strategies)))


def test_switches_of_a_step_by_hand() -> None:
    """Parameters out, both between, gradients back; an anchor that runs first leaves with both."""
    out, both = Hop(0, 1, "parameters", 1), Hop(1, 2, "both", 12 + 1200)
    back = Hop(2, 0, "gradients", 2000)
    assert hops(SWITCHING, visits(0, 1, 2)) == [out, both, back]
    assert hops(SWITCHING, visits(0, 1, 2, 0)) == [out, both, back]
    from_itself = [Hop(0, 1, "both", 101), Hop(1, 0, "gradients", 1000)]
    assert hops(SWITCHING, visits(0, 0, 1)) == from_itself
    assert hops(SWITCHING, visits(0, 0)) == []
    returned = Switching(SWITCHING.parameters_ns, SWITCHING.gradients_ns, parameters_return=True)
    assert hops(returned, visits(0, 1))[-1] == Hop(1, 0, "both", 10 + 1000)


def test_a_step_by_hand() -> None:
    """5 + 7 ns, a visit of 1 each, the optimizer of the anchor 30, out 1 and back 1000."""
    strategies = (
        Strategy("anchor", (), 1, 30, (None, 7)),
        Strategy("short", (), 1, 30, (5, None)),
        Strategy("none", (), 1, 30, (None, 9)),
    )
    mixed = Mixed((Atom(1, 1), Atom(2, 1)), strategies, SWITCHING)
    assert step_ns(mixed, visits(0, 1, 0)) == 5 + 7 + 2 + 30 + 1 + 1000
    assert step_ns(mixed, visits(0, 0, 1)) is None
    assert best_single(mixed) is None


def test_figures_of_a_group_by_hand() -> None:
    """Lengths 1 and 3 of 1, 2, 3: two buckets; 3 x 1 + 2 x 3 = 9 tokens in rows of 4, 2 replicas.

    9 tokens are 3 rows, 2 on each, and half of 9 ns. Unlike replicas of 1 and 3 ns a token take 12
    and 4 of 16 tokens: 3 rows and 1.
    """
    fast, slow = (Replica(1, 4, RowTime(0.0, price, 0)) for price in (1.0, 3.0))
    strategies = (Strategy("two", (fast, fast)), Strategy("unlike", (fast, slow)))
    measured = Strategy("measured", atoms_ns=(None, 4, None, None))
    atoms = (Atom(1, 3), Atom(2, 1), Atom(3, 2), Atom(4, 4))
    mixed = Mixed(atoms, (*strategies, measured), SWITCHING)
    tour = Tour(0, (Group(0, (0, 2)), Group(1, (3,)), Group(2, (1,))))
    assert list(group_figures(mixed, tour)) == [
        GroupFigures(0, (0, 2), ((0, 1), (2, 3)), 5, 9, (2, 2), 5),
        GroupFigures(1, (3,), ((3, 4),), 4, 16, (3, 1), 12),
        GroupFigures(2, (1,), ((1, 2),), 1, 2, (), 4),
    ]


def test_the_best_single_strategy_takes_all() -> None:
    """It is the fastest of those that take every atom."""
    for seed in range(10):
        mixed = random_mixed(seed)
        every = tuple(range(len(mixed.atoms)))
        tours = [Tour(q, (Group(q, every),)) for q in range(len(mixed.strategies))]
        known = [tour_ns(mixed, tour) for tour in tours]
        least = min(ns for ns in known if ns is not None)
        assert best_single(mixed) == Single(known.index(least), least)
