"""Every Big-M is valid, and none is larger than it must be."""

import random
from itertools import combinations, product

import numpy as np
import pytest

from formulations.costs.tables import Array
from formulations.models.layer_to_stage import excess, longest_path
from formulations.models.milp import choice_slack, pair_slack
from formulations.models.model import Term


def runs(length: int, seed: int) -> Array:
    """Some runs of layers that a stage may be."""
    rng = random.Random(seed)
    known = list(combinations(range(length + 1), 2))
    return np.array(sorted(rng.sample(known, 6)), dtype=np.int64)


def value(term: Term) -> int:
    """Of a term of constants."""
    assert isinstance(term, int)
    return term


def values(length: int, seed: int) -> Array:
    """Random values per layer."""
    return np.random.default_rng(seed).integers(0, 100, length)


@pytest.mark.parametrize("seed", range(20))
def test_excess_is_the_largest_difference(seed: int) -> None:
    """No run has a larger difference of sums, and one has this."""
    intervals, first, second = runs(6, seed), values(6, seed), values(6, seed + 99)
    differences = [int((first - second)[a:b].sum()) for a, b in intervals]
    assert excess(intervals, first, second) == max(differences)


def test_excess_may_be_negative() -> None:
    """Two layers of 1 against two of 4: at best 3 less, for the shorter run."""
    intervals = np.array([[0, 1], [0, 2]])
    assert excess(intervals, np.array([1, 1]), np.array([4, 4])) == -3


def test_excess_of_no_run_is_nothing() -> None:
    """A stage that cannot be needs no slack."""
    assert excess(np.zeros((0, 2), dtype=np.int64), values(6, 0), values(6, 1)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_choice_rows_value_the_choice(seed: int) -> None:
    """Whichever option holds, the largest row is its cost on every run."""
    intervals = runs(6, seed)
    costs = {key: values(6, seed + 50 * key) for key in range(3)}

    def more(one: int, other: int) -> int:
        return excess(intervals, costs[one], costs[other])

    for holds, (a, b) in product(costs, intervals):
        literals = {key: int(key == holds) for key in costs}
        rows = [
            int(costs[key][a:b].sum()) - value(choice_slack(key, literals, more)) for key in costs
        ]
        assert max(rows) == costs[holds][a:b].sum()


@pytest.mark.parametrize("seed", range(20))
def test_pair_rows_value_both_choices(seed: int) -> None:
    """Whichever pair of options holds, the largest row is its cost on every run."""
    intervals = runs(6, seed)
    keys = list(product(range(3), (1, 2)))
    costs = {key: values(6, seed + 10 * n) for n, key in enumerate(keys)}

    def more(one: tuple[int, int], other: tuple[int, int]) -> int:
        return excess(intervals, costs[one], costs[other])

    for (first, second), (a, b) in product(keys, intervals):
        firsts = {key: int(key == first) for key in range(3)}
        seconds = {key: int(key == second) for key in (1, 2)}
        rows = [
            int(costs[key][a:b].sum()) - value(pair_slack(*key, firsts, seconds, more))
            for key in keys
        ]
        assert max(rows) == costs[first, second][a:b].sum()


@pytest.mark.parametrize("seed", range(20))
def test_longest_path_is_the_longest(seed: int) -> None:
    """No split of 6 layers over 3 stages has a longer path, and one has this."""
    rng = random.Random(seed)
    columns = [[values(6, seed + 7 * k), values(6, seed + 9 * k + 1)] for k in range(3)]
    splits = [(0, a, b, 6) for a, b in combinations(range(1, 6), 2) if rng.random() < 0.7]
    stages = [(np.array(sorted({(s[k], s[k + 1]) for s in splits})), columns[k]) for k in range(3)]
    # Runs of the stages meet in more splits than those that made them.
    sets = [{tuple(run) for run in intervals.tolist()} for intervals, _ in stages]
    longest = max(
        sum(max(int(c[s[k] : s[k + 1]].sum()) for c in columns[k]) for k in range(3))
        for s in ((0, a, b, 6) for a, b in combinations(range(1, 6), 2))
        if all((s[k], s[k + 1]) in sets[k] for k in range(3))
    )
    assert longest_path(stages, 6) == longest


def test_no_path_is_nothing() -> None:
    """Stages that do not meet leave no split, and nothing to take back."""
    ones = np.ones(4, dtype=np.int64)
    stages = [(np.array([[0, 1]]), [ones]), (np.array([[2, 4]]), [ones])]
    assert longest_path(stages, 4) == 0
