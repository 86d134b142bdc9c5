"""Steps in ascending and free order, and the times they minimise, beside every step there is."""

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
from formulations.lengths.tour import Group, Single, Tour, best_single, step_ns
from solver.lengths.candidates import candidates
from solver.lengths.choose import NoStepError, ascending, build_lengths, choose
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.verify import verify_lengths
from tests.mixed_lengths import (
    ascending_tours,
    free_tours,
    least_ns,
    random_mixed,
    set_ns,
    tour_ns,
    with_free_sequences,
)
from tests.mixed_rows import OTHER_NODE, small
from tests.seeds import few_and_many


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(200, 210), 9))
def test_free_is_the_best_of_both(seeds: range, rows: Rows) -> None:
    """Free order takes the least of tours and ascending steps, proved, and never more than them."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        known = [least_ns(mixed, ascending_tours(mixed)), least_ns(mixed, free_tours(mixed))]
        best_ns = min(ns for ns in known if ns is not None)
        chosen = choose(mixed, "free")
        assert chosen.step_ns == chosen.bound_ns == tour_ns(mixed, chosen.tour) == best_ns
        assert (chosen.status, chosen.termination) == (Status.OPTIMAL, Termination.CLOSED)


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(7, 22), 15))
def test_bug_sequences_that_take_no_time_counted_1_ns_each(seeds: range, rows: Rows) -> None:
    """Where rows take as long whatever they hold, search, brute force and `verify` agree."""
    for seed in seeds:
        mixed = with_free_sequences(random_mixed(seed, rows=rows), seed)
        known = [least_ns(mixed, ascending_tours(mixed)), least_ns(mixed, free_tours(mixed))]
        best_ns = min(ns for ns in known if ns is not None)
        chosen = choose(mixed, "free")
        assert chosen.step_ns == chosen.bound_ns == tour_ns(mixed, chosen.tour) == best_ns
        assert verify_lengths(build_lengths(chosen, "toy")).ok


def test_bug_presolve_lost_the_best_step_in_free_order() -> None:
    """Unlike replicas, times in ns: for a product of 10^14 CP-SAT said that there is none."""
    mixed = candidates(
        small(
            **{"search: {zero: 1}": f"{OTHER_NODE.removesuffix('search')}search: {{zero: [0, 1]}}"},
            **{"layers: 8, heads: 16": "layers: 5, heads: 8", "count: 40}": "count: 400}"},
            **{"8000, count: 2}": "40000, count: 1}", "lengths:": "lengths:\n  rows: padded"},
        )
    ).mixed
    assert choose(mixed, "free").step_ns == least_ns(mixed, free_tours(mixed)) == 1759818169


def test_the_best_single_strategy_takes_all() -> None:
    """It is the fastest of those that take every atom; steps are never slower."""
    for seed in range(10):
        mixed = random_mixed(seed)
        every = tuple(range(len(mixed.atoms)))
        tours = [Tour(q, (Group(q, every),)) for q in range(len(mixed.strategies))]
        known = [tour_ns(mixed, tour) for tour in tours]
        least = min(ns for ns in known if ns is not None)
        assert best_single(mixed) == Single(known.index(least), least)
        assert choose(mixed, "ascending").step_ns <= least


def test_no_time_leaves_the_ascending_step_with_its_gap() -> None:
    """A search without time has the step of the dynamic program, and a bound that holds."""
    mixed = random_mixed(1, num_atoms=6)
    chosen = choose(mixed, "free", SolveOptions(time_limit_s=0.0))
    assert chosen.step_ns == choose(mixed, "ascending").step_ns
    assert chosen.bound_ns <= choose(mixed, "free").step_ns
    assert chosen.termination is Termination.TIME_LIMIT


def test_lengths_that_nothing_takes() -> None:
    """Too long a sequence is named, with exit code 3."""
    mixed = random_mixed(1)
    long = replace(mixed, atoms=(*mixed.atoms[:-1], Atom(65_536, 1)))
    with pytest.raises(NoStepError, match=r"sequences of 65,536 tokens: no strategy takes them"):
        choose(
            replace(
                long,
                strategies=tuple(
                    replace(one, atoms_ns=(1, 1, 1, None)) if one.atoms_ns else one
                    for one in long.strategies
                ),
            ),
            "free",
        )
    assert NoStepError.exit_code == 3


def test_strategies_that_no_switch_joins() -> None:
    """Each atom has its strategy, but the step cannot be made."""
    none = ((None, None), (None, None))
    strategies = (Strategy("short", atoms_ns=(1, None)), Strategy("long", atoms_ns=(None, 1)))
    mixed = Mixed((Atom(1, 1), Atom(2, 1)), strategies, Switching(none, none))
    for order in ("ascending", "free"):
        with pytest.raises(NoStepError, match="no switches join strategies"):
            choose(mixed, order)


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
