"""Tests of solver.lengths.choose."""

from dataclasses import replace

import pytest

from formulations.lengths.problem import Atom, Mixed, Rows, Strategy, Switching
from formulations.lengths.tour import Group, Single, Tour, best_single
from solver.lengths.candidates import candidates
from solver.lengths.choose import NoStepError, build_lengths, choose
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.verify import verify_lengths
from tests.mixed_lengths import (
    ascending_tours,
    free_tours,
    least_ns,
    random_mixed,
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
