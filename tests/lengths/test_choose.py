"""Steps in ascending and free order, and the times they minimise, beside every step there is."""

from dataclasses import replace

import pytest

from formulations.lengths.problem import (
    Atom,
    Mixed,
    Rows,
    Strategy,
    Switching,
)
from formulations.lengths.tour import Group, Tour, step_ns
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
    tour_ns,
    with_free_sequences,
)
from tests.mixed_rows import OTHER_NODE, small
from tests.seeds import few_and_many


def check_free(mixed: Mixed) -> None:
    """Free order takes the least of tours and ascending steps, proved, and never more than them."""
    known = [least_ns(mixed, ascending_tours(mixed)), least_ns(mixed, free_tours(mixed))]
    best_ns = min(ns for ns in known if ns is not None)
    chosen = choose(mixed, "free")
    assert chosen.step_ns == chosen.bound_ns == tour_ns(mixed, chosen.tour) == best_ns
    assert (chosen.status, chosen.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert verify_lengths(build_lengths(chosen, "toy")).ok


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(200, 210), 10))
def test_free_is_the_best_of_both(seeds: range, rows: Rows) -> None:
    """Of random problems."""
    for seed in seeds:
        check_free(random_mixed(seed, rows=rows))


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(7, 22), 15))
def test_bug_sequences_that_take_no_time_counted_1_ns_each(seeds: range, rows: Rows) -> None:
    """Where rows take as long whatever they hold, search, brute force and `verify` agree."""
    for seed in seeds:
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
    assert choose(mixed, "free").step_ns == least_ns(mixed, free_tours(mixed)) == 1759818169


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


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 20))
def test_ascending_is_the_best_of_all(seeds: range, rows: Rows) -> None:
    """The step costs what it is said to, and no way to cut, choose and anchor costs less."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        tour = ascending(mixed)
        best_ns = least_ns(mixed, ascending_tours(mixed))
        assert (None if tour is None else tour_ns(mixed, tour)) == best_ns
        assert (None if tour is None else step_ns(mixed, tour)) == best_ns


@pytest.mark.parametrize("rows", ["packed", "padded"])
def test_choices_and_costs_are_monotonous(rows: Rows) -> None:
    """Without a strategy no step is faster, nor with longer visits or optimizers."""
    for seed in range(4):
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
