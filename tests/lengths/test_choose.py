"""Steps in ascending and free order, and the times they minimise, beside every step there is."""

import pytest

from formulations.errors import NoPlanError
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching
from formulations.lengths.tour import Group, Tour, step_ns
from solver.lengths.candidates import candidates
from solver.lengths.choose import ascending, build_lengths, choose
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.verify import verify_lengths
from tests.mixed_lengths import (
    OTHER_NODE,
    ascending_tours,
    free_tours,
    least_ns,
    random_mixed,
    small,
    tour_ns,
    with_free_sequences,
)
from tests.seeds import each_of


def check_free(mixed: Mixed) -> None:
    """Free order takes the least of tours and ascending steps, proved, and never more than them."""
    known = [least_ns(mixed, ascending_tours(mixed)), least_ns(mixed, free_tours(mixed))]
    best_ns = min(ns for ns in known if ns is not None)
    chosen = choose(mixed, "free")
    assert chosen.step_ns == chosen.bound_ns == tour_ns(mixed, chosen.tour) == best_ns
    assert (chosen.status, chosen.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert not verify_lengths(build_lengths(chosen, "toy")).problems


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(209, 199, -1), 10)
def test_free_is_the_best_of_both(seed: int, rows: Rows) -> None:
    check_free(random_mixed(seed, rows=rows))


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(7, 22), 15)
def test_bug_sequences_that_take_no_time_counted_1_ns_each(seed: int, rows: Rows) -> None:
    """Where rows take as long whatever they hold, search, brute force and `verify` agree."""
    check_free(with_free_sequences(random_mixed(seed, rows=rows), seed))


def test_bug_presolve_lost_the_best_step_in_free_order() -> None:
    """Unlike replicas, times in ns: for a product of 10^14 CP-SAT said that there is none."""
    mixed = candidates(
        small(
            **{"search: {zero: 1}": f"{OTHER_NODE.removesuffix('search')}search: {{zero: [0, 1]}}"},
            **{"layers: 8, heads: 16": "layers: 5, heads: 8", "count: 40}": "count: 400}"},
            **{"8000, count: 2}": "40000, count: 1}", "lengths:": "lengths:\n  rows: padded"},
        )
    ).mixed
    assert choose(mixed, "free").step_ns == least_ns(mixed, free_tours(mixed)) == 1749675929


@pytest.mark.parametrize("dp", [1024, 900_000])
def test_bug_many_replicas_left_64_bits_in_free_order(dp: int) -> None:
    """Without an ascending step times were below 2^52 ns alone, and CP-SAT refused dp of them.

    Of 10^6 sequences of 50 us a replica runs the most, in rows of one, behind one row.
    """
    rows = Strategy("rows", (Replica(2, 1000, RowTime(0.0, 50.0, 7), dp),))
    measured = Strategy("measured", atoms_ns=(None, 10**6))
    switching = Switching(((0, 5), (None, 0)), ((0, None), (5, 0)))
    mixed = Mixed((Atom(1000, 10**6), Atom(4000, 10)), (rows, measured), switching)
    assert ascending(mixed) is None
    chosen = choose(mixed, "free")
    each = -(-(10**6) // dp)
    assert chosen.step_ns == chosen.bound_ns == (each + 1) * 50_007 + 10**6 + 5 + 5


def test_no_time_leaves_the_ascending_step_with_its_gap() -> None:
    mixed = random_mixed(1, num_atoms=6)
    chosen = choose(mixed, "free", SolveOptions(time_limit_s=0.0))
    assert chosen.step_ns == choose(mixed, "ascending").step_ns
    assert chosen.bound_ns <= choose(mixed, "free").step_ns
    assert chosen.termination is Termination.TIME_LIMIT


def of_times(*times_ns: tuple[int | None, ...], switch_ns: int | None = 0) -> Mixed:
    """Strategies with measured times of atoms of one sequence each, switches of a time."""
    table = ((switch_ns,) * len(times_ns),) * len(times_ns)
    atoms = tuple(Atom(n + 1, 1) for n in range(len(times_ns[0])))
    strategies = tuple(Strategy(f"s{q}", atoms_ns=own) for q, own in enumerate(times_ns))
    return Mixed(atoms, strategies, Switching(table, table))


@pytest.mark.parametrize(
    ("mixed", "words"),
    [
        (of_times((1, None), (2, None)), "no strategies take all lengths together"),
        (of_times((1, None), (None, 1), switch_ns=None), "or no switches join them"),
    ],
)
def test_there_is_no_step(mixed: Mixed, words: str) -> None:
    """Exit code 3 where a sequence is too long, or each atom has its strategy in vain."""
    for order in ("ascending", "free"):
        with pytest.raises(NoPlanError, match=words):
            choose(mixed, order)
    assert NoPlanError.exit_code == 3


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(40), 20)
def test_ascending_is_the_best_of_all(seed: int, rows: Rows) -> None:
    """The step costs what it is said to, and no way to cut, choose and anchor costs less."""
    mixed = random_mixed(seed, rows=rows)
    tour = ascending(mixed)
    best_ns = least_ns(mixed, ascending_tours(mixed))
    assert (None if tour is None else tour_ns(mixed, tour)) == best_ns
    assert (None if tour is None else step_ns(mixed, tour)) == best_ns


def test_bug_a_step_of_one_group_was_anchored_elsewhere() -> None:
    """Of an anchor that costs nothing to leave, and the strategy alone, which is as good, this."""
    assert ascending(of_times((9,), (5,))) == Tour(1, (Group(1, (0,)),))
