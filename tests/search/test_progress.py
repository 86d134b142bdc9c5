"""What is told of a search while it runs: configs, incumbent, bound and gap as they stand."""

from solver.options import SolveOptions
from solver.result import Status
from solver.search.driver import solve
from solver.search.progress import Progress
from tests.search.spaces import recorded_searches
from tests.small_instances import random_instance

test_searches_are_the_recorded_ones = recorded_searches()


def test_incumbent_and_bound_come_together() -> None:
    """Told after every configuration; bounds rise, incumbents fall, and in the end they meet.

    And before: of 2,048 nodes it takes a minute to list the configurations.
    """
    told = list[Progress]()
    result = solve(random_instance(3), SolveOptions(time_limit_s=600.0), told.append)
    bounds = [known.bound_ns or 0 for known in told]
    times = [known.incumbent_ns or float("inf") for known in told]
    assert bounds == sorted(bounds)
    assert times == sorted(times, reverse=True)
    totals = [known.configs_total for known in told]
    assert totals == [0] + [len(result.log.configs)] * (len(told) - 1)
    assert told[-1].incumbent_ns == result.step_time_ns == told[-1].bound_ns
    assert 0 < (told[-1].left_s or 0) <= 600
    history = result.log.history
    assert list(history) == sorted(history, key=lambda moment: moment.elapsed_s)
    shares = [moment.bound for moment in history if moment.bound is not None]
    assert shares[0] < shares[-1] == 1.0
    assert any(moment.step_time_s is not None for moment in history)


def test_bounds_of_money_are_no_times() -> None:
    told = list[Progress]()
    cheapest = random_instance(3).but(objective={"minimize": "cost_per_step"})
    assert solve(cheapest, None, told.append).status is Status.OPTIMAL
    assert {now.bound_ns for now in told} == {None}


def test_time_left_is_that_to_the_limit() -> None:
    """10 s of which 4 are over leave 6; none after it; without a limit there is no such time."""
    limits = [(4.0, 10.0), (14.0, 10.0), (4.0, None)]
    assert [Progress(1, 2, None, None, None, *s).left_s for s in limits] == [6.0, 0.0, None]


def test_bug_progress_of_a_search_without_a_plan_ended_in_a_traceback() -> None:
    """Where everything is refuted no bound is known: none is told."""
    told = list[Progress]()
    limited = random_instance(3).but(limits={"max_step_time_s": 1e-9})
    assert solve(limited, None, told.append).status is Status.INFEASIBLE
    assert [now.bound_ns for now in told] == [None] * len(told) != []
