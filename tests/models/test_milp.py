"""Every Big-M is valid, and none is larger than it must be."""

from itertools import product

import pytest

from formulations.models.layer_to_stage import excess
from formulations.models.milp import choice_slack, pair_slack
from formulations.models.model import Term, weighted
from tests.models.test_layer_to_stage import random_runs, values
from tests.twins import MILP, check_alternatives, size_of


def value(term: Term) -> int:
    assert isinstance(term, int)
    return term


@pytest.mark.parametrize("seed", range(6))
def test_choice_rows_value_the_choice(seed: int) -> None:
    """Whichever option holds, the largest row is its cost on every run."""
    intervals = random_runs(6, seed)
    costs = {key: values(6, seed + 50 * key) for key in range(3)}

    def more(one: int, other: int) -> int:
        return excess(intervals, costs[one], costs[other])

    for holds, (a, b) in product(costs, intervals):
        literals = {key: int(key == holds) for key in costs}
        rows = [
            int(costs[key][a:b].sum()) - value(choice_slack(key, literals, more)) for key in costs
        ]
        assert max(rows) == costs[holds][a:b].sum()


@pytest.mark.parametrize("seed", range(6))
def test_pair_rows_value_both_choices(seed: int) -> None:
    intervals = random_runs(6, seed)
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


def test_rows_and_variables_that_say_nothing_are_left_out() -> None:
    """Of an x up to 5: at most 5 is certain, at most 4 not; a sum is a value, a difference not."""
    for most, rows in ((5, 0), (4, 1)):
        model = MILP.model()
        x, condition = model.integer("x", 5), model.literal("condition")
        model.at_most(0, x, most, condition)
        assert size_of(model)[1] == rows
        for factor, is_value in ((3, True), (-3, False)):
            term = weighted([2, factor], [x, condition])
            assert (model.maximum(1, [((), term)], 13, f"of_{most}") is term) is is_value


def test_models_of_alternatives_are_the_recorded_ones() -> None:
    check_alternatives(MILP)
