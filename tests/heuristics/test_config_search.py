"""Local search within one configuration: starts, descents and orders near a plan."""

from random import Random

import pytest

from formulations.decisions import even_shares
from solver.heuristics.config_search import LONGEST_NS, ConfigSearch
from solver.heuristics.trial import PathPool
from tests import brute_force
from tests.chain_instances import FAST, SLOW, chain_instance, chain_tables
from tests.random_configs import random_tables
from tests.seeds import one_each

pytestmark = pytest.mark.usefixtures("round_times")


def test_a_start_evens_out_the_work_and_a_descent_ends_where_no_layer_moved_helps() -> None:
    """6 blocks of 3 ms on a fast and 6 ms on a slow GPU: 4 and 2, 12 ms each; from 1 | 5 too."""
    tables = chain_tables(chain_instance([2] * 6, [FAST, SLOW]))
    search = ConfigSearch(tables, PathPool())
    state = search.starts.start((0, 1), LONGEST_NS)
    assert state is not None
    assert state.split == (0, 5, 8)
    assert search.starts.start((0, 1), 1) is None
    state = search.starts.judged((0, 1), even_shares(tables), (0, 2, 8))
    assert state is not None
    best = search.descend(state, lambda: False)
    assert best.step_time_ns == brute_force.optimum_ns(tables, orders=[(0, 1)])
    assert search.descend(state, lambda: True) == state


@pytest.mark.parametrize("seed", one_each(range(20), 5))
def test_improvements_get_no_worse_and_stay_above_the_optimum(seed: int) -> None:
    """Random configurations, from the first order that has a start."""
    tables = random_tables(seed)
    search, best_ns = ConfigSearch(tables, PathPool()), brute_force.optimum_ns(tables)
    starts = [search.starts.start(order, LONGEST_NS) for order in search.first_orders]
    state = next((state for state in starts if state is not None), None)
    if state is None:
        pytest.skip("no start fits")
    assert best_ns is not None
    times = [s.step_time_ns for s in search.improvements(state, Random(0), 20, lambda: False)]
    assert times == sorted(times, reverse=True)
    assert best_ns <= times[-1] <= state.step_time_ns
