"""All splits below a cutoff: the best of them is found, and a bound is left when stopped."""

import pytest

from solver.enumeration.engine import best_start
from solver.enumeration.enumerate import Enumerator, below
from solver.graph.edges import build_layers, renumbered
from tests.graph.drawn import NO_CUTOFF, chain_splits, chain_time, random_chain
from tests.seeds import one_each


def test_times_within_the_gap_are_not_below() -> None:
    """Ten percent of 101 ns are off, rounded up; without a gap nothing is."""
    assert (below(100, 0.1), below(101, 0.1), below(101, 0.0)) == (90, 91, 101)


@pytest.mark.parametrize("seed", one_each(range(40), 5))
def test_enumeration_finds_the_best_split(seed: int) -> None:
    """Of all edges; stopped at once it states a bound that holds."""
    problem = random_chain(seed)
    best = min(chain_time(problem, split) for split in chain_splits(problem))
    layers = renumbered(build_layers(problem, NO_CUTOFF))
    cuts = best_start(problem, layers, lambda: False)[3]
    search = Enumerator(problem, layers, NO_CUTOFF, cuts, 0.0)
    assert search.run(lambda: True) <= best
    assert search.run(lambda: False) == search.best_time == best
