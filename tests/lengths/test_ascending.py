"""Tests of solver.lengths.choose and of the time that it minimises."""

from dataclasses import replace
from itertools import combinations

import pytest

from formulations.errors import PlannerError
from formulations.lengths.problem import (
    Atom,
    Mixed,
    Replica,
    Rows,
    RowTime,
    Strategy,
    Switching,
)
from formulations.lengths.strategy_time import NEVER, StrategyTimes, strategy_times
from formulations.lengths.tour import Group, Tour, step_ns
from solver.lengths.choose import ascending
from tests.mixed_lengths import ascending_tours, least_ns, random_mixed, set_ns, tour_ns
from tests.seeds import few_and_many

ROWS: tuple[Rows, ...] = ("packed", "padded")


def test_time_of_a_packed_set_by_hand() -> None:
    """Two replicas of three stages share 4 sequences of 10 tokens and 1 of 40, rows of 40."""
    time = RowTime(per_square_ns=1.0, per_token_ns=2.0, per_row_ns=7)
    strategy = Strategy("two", (Replica(3, 40, time),) * 2)
    times = StrategyTimes(strategy, (Atom(10, 4), Atom(40, 1)), "packed")
    # 10 tokens: 120 ns, 40: 1680 ns; work 2160, half of it 1080, but the longest alone takes 1680;
    # 80 tokens are 1 row on each: 7;
    # the longest row is the one of 40 tokens, 1687 (four of 10: 487), two of them fill.
    assert times.of_set((0, 1)) == 1680 + 7 + 2 * 1687


def test_time_of_a_padded_set_by_hand() -> None:
    """Five rows of two lengths on two replicas: the long one alone takes more than half of all."""
    time = RowTime(per_square_ns=1.0, per_token_ns=2.0, per_row_ns=7)
    strategy = Strategy("two", (Replica(3, 40, time),) * 2)
    times = StrategyTimes(strategy, (Atom(10, 4), Atom(40, 1)), "padded")
    # A row of 10 tokens takes 127 ns, of 40 1687: half of 2195 is 1098, the longest alone 1687.
    assert times.of_set((0, 1)) == 1687 + 2 * 1687
    # Of ten rows of 10 and four of 40 the half, 4009 ns, is more than two long rows.
    more = StrategyTimes(strategy, (Atom(10, 10), Atom(40, 4)), "padded")
    assert more.of_set((0, 1)) == 4009 + 2 * 1687


def test_unlike_replicas_end_at_once() -> None:
    """A replica three times as fast takes three quarters, so that both end after 300 ns."""
    fast, slow = (Replica(1, 100, RowTime(0.0, price, 0)) for price in (1.0, 3.0))
    times = StrategyTimes(Strategy("unlike", (fast, slow)), (Atom(100, 4),), "packed")
    assert times.of_set((0,)) == 300


def test_bug_sequences_are_not_divided() -> None:
    """One sequence takes as long on four replicas as on one, and three of them on two as two do.

    As a share of the work it was a fourth: 1 of 32K of 32B on 8 replicas 2.2 s, where it takes 16.
    """
    time = RowTime(per_square_ns=1.0, per_token_ns=2.0, per_row_ns=7)
    four = Strategy("four", (Replica(1, 40, time),) * 4)
    assert StrategyTimes(four, (Atom(40, 1),), "packed").of_set((0,)) == 1680 + 7
    two = StrategyTimes(Strategy("two", (Replica(1, 40, time),) * 2), (Atom(40, 3),), "packed")
    assert two.of_set((0,)) == 2 * 1680 + 2 * 7


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_times_are_those_by_definition(seeds: range, rows: Rows) -> None:
    """Sets and intervals take what they take in fractions, replicas alike or not."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        known = range(len(mixed.atoms))
        for q, times in enumerate(strategy_times(mixed)):
            for size in range(1, len(known) + 1):
                for atoms in combinations(known, size):
                    assert times.of_set(atoms) == set_ns(mixed, q, atoms)
            intervals = times.of_intervals()
            for i in known:
                for j in range(i + 1, len(known) + 1):
                    expected = set_ns(mixed, q, range(i, j))
                    assert intervals[i, j] == (NEVER if expected is None else expected)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("seeds", few_and_many(range(40), 10))
def test_ascending_is_the_best_of_all(seeds: range, rows: Rows) -> None:
    """The step costs what it is said to, and no way to cut, choose and anchor costs less."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        tour = ascending(mixed)
        best_ns = least_ns(mixed, ascending_tours(mixed))
        assert (None if tour is None else tour_ns(mixed, tour)) == best_ns
        assert (None if tour is None else step_ns(mixed, tour)) == best_ns


@pytest.mark.parametrize("rows", ROWS)
def test_choices_and_costs_are_monotonous(rows: Rows) -> None:
    """Without a strategy no step is faster, nor with longer visits or optimizers."""
    for seed in range(10):
        mixed = random_mixed(seed, rows=rows)
        best_ns = _least_ns(mixed)
        for q, one in enumerate(mixed.strategies[:-1]):
            for slower in (
                replace(one, visit_ns=one.visit_ns + 50),
                replace(one, anchor_ns=one.anchor_ns + 9999),
            ):
                strategies = (*mixed.strategies[:q], slower, *mixed.strategies[q + 1 :])
                assert best_ns <= _least_ns(replace(mixed, strategies=strategies))
        kept = [n for n in range(len(mixed.strategies)) if n != 0]
        tables = (mixed.switching.parameters_ns, mixed.switching.gradients_ns)
        out, back = (tuple(tuple(one[a][b] for b in kept) for a in kept) for one in tables)
        switching = Switching(out, back, mixed.switching.parameters_return)
        rest = tuple(mixed.strategies[n] for n in kept)
        assert best_ns <= _least_ns(replace(mixed, strategies=rest, switching=switching))


def _least_ns(mixed: Mixed) -> int:
    """Of all steps in ascending order; strategy `all` is one."""
    tour = ascending(mixed)
    assert tour is not None
    least_ns = step_ns(mixed, tour)
    assert least_ns is not None
    return least_ns


def test_a_tour_alone_has_no_switch() -> None:
    """One strategy for all is its own anchor, whatever its switches would cost."""
    mixed = Mixed((Atom(1, 1),), (Strategy("one", atoms_ns=(5,)),), Switching(((9,),), ((9,),)))
    assert ascending(mixed) == Tour(0, (Group(0, (0,)),))
    assert step_ns(mixed, Tour(0, (Group(0, (0,)),))) == 5


def test_bug_a_step_of_one_group_was_anchored_elsewhere() -> None:
    """Of an anchor that costs nothing to leave, and the strategy alone, which is as good, this."""
    atoms, free = (Atom(10, 1),), ((0, 0), (0, 0))
    strategies = (Strategy("slow", atoms_ns=(9,)), Strategy("fast", atoms_ns=(5,)))
    assert ascending(Mixed(atoms, strategies, Switching(free, free))) == Tour(1, (Group(1, (0,)),))


def test_steps_of_days_are_refused() -> None:
    """Times whose products would leave 64 bits are an error in one line."""
    strategy = Strategy("slow", (Replica(1, 10, RowTime(0.0, 1e13, 0)),))
    with pytest.raises(PlannerError, match=r"strategy slow: one replica would take [\d,]+ s"):
        StrategyTimes(strategy, (Atom(10, 4),), "packed")


def test_bug_many_short_sequences_were_days() -> None:
    """20,000 of a token are 20 s, although a row may hold a sequence of 100 s as well."""
    strategy = Strategy("fast", (Replica(1, 100_000, RowTime(0.0, 1e6, 0)),))
    times = StrategyTimes(strategy, (Atom(1, 20_000), Atom(100_000, 1)), "packed")
    assert times.of_set((0, 1)) == 120 * 10**9
