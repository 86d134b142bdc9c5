"""Pairs of replicas on one split: never above the optimum, and more than one replica shows."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.bounds import windows
from solver.bounds.relaxation import Relaxation
from solver.enumeration.engine import solve_split
from solver.enumeration.pairs import Pairs
from solver.layered.placements import free_order
from solver.layered.problem import Intervals
from tests import brute_force
from tests.random_shapes import three_types
from tests.seeds import one_each
from tests.solver.test_enumeration import NO_CUTOFF


def optimum_ns(tables: CostTables) -> int | None:
    """Of all node orders at once, which brute force bears out, see test_enumeration."""
    problem = free_order(Intervals(tables), Placer(tables))
    assert problem is not None
    return solve_split(problem, NO_CUTOFF).step_time_ns


def relaxed(tables: CostTables, cutoff: int) -> Relaxation:
    """What any replica may run below a cutoff that leaves something."""
    relaxation = Relaxation(Intervals(tables), Placer(tables))
    assert not relaxation.thin(cutoff)
    return relaxation


@pytest.mark.parametrize("seed", one_each(range(80), 8))
@pytest.mark.parametrize(("above", "labels"), [(1.0, 64), (1.1, 2)])
def test_no_pair_refutes_the_best_plan(
    monkeypatch: pytest.MonkeyPatch, seed: int, above: float, labels: int
) -> None:
    """Cutoffs above the optimum are never reached, also if windows merge their labels."""
    monkeypatch.setattr(windows, "MOST_LABELS", labels)
    tables = three_types(seed)
    best = optimum_ns(tables)
    if best is None:
        pytest.skip("no plan fits")
    cutoff = int(best * above) + 1
    relaxation = relaxed(tables, cutoff)
    assert Pairs.suit(relaxation.replica)
    assert Pairs(relaxation.replica, relaxation.common).bound_ns(cutoff, lambda: False) <= best


def test_the_optimum_of_three_types_is_that_of_brute_force() -> None:
    """The witness of the other tests has a witness."""
    tables = three_types(52)
    assert optimum_ns(tables) == brute_force.optimum_ns(tables)


@pytest.fixture
def shown_by_pairs() -> tuple[Relaxation, int]:
    """A shape and a cutoff, 20 % below the best plan, that one replica can be 37 % below."""
    tables = three_types(181)
    best = optimum_ns(tables)
    assert best is not None
    return relaxed(tables, 4 * best // 5), 4 * best // 5


def test_a_pair_refutes_what_light_replicas_leave(shown_by_pairs: tuple[Relaxation, int]) -> None:
    """One replica may be below the cutoff, two on its split may not."""
    relaxation, cutoff = shown_by_pairs
    for weighed in relaxation.weightings:
        assert not relaxation.closes(cutoff, weighed, counted=True)
    assert Pairs(relaxation.replica, relaxation.common).bound_ns(cutoff, lambda: False) == cutoff


def test_a_stopped_pair_says_no_more_than_it_knows(
    shown_by_pairs: tuple[Relaxation, int],
) -> None:
    """Stopped at once, the bound stays below what the whole search reaches."""
    relaxation, cutoff = shown_by_pairs
    assert Pairs(relaxation.replica, relaxation.common).bound_ns(cutoff, lambda: True) < cutoff


def test_a_pair_that_is_not_refuted_is_kept() -> None:
    """Where two replicas can be below the cutoff on one split, they are shown, and run all layers.

    Of the six nodes of this shape one is of the fastest type, so the first has none of it.
    """
    tables = three_types(13)
    best = optimum_ns(tables)
    assert best is not None
    relaxation = relaxed(tables, best)
    pairs = Pairs(relaxation.replica, relaxation.common)
    assert pairs.bound_ns(best, lambda: False) < best
    assert pairs.found is not None
    assert pairs.found.split[0] == 0
    assert pairs.found.split[-1] == tables.num_layers
    assert (pairs.found.kinds[0] != relaxation.replica.rank.argmin()).all()
    assert (pairs.found.kinds[1] == relaxation.replica.rank.argmin()).any()
