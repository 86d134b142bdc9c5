"""What an incumbent, a limit and a rent close, held against brute force."""

import pytest

from formulations.instance import Instance
from formulations.space import configs
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.result import Status, longest_step_ns, objective_weight
from solver.search.driver import solve
from solver.search.enumeration import enumerate_config
from solver.search.fathoming import Closer, Task
from tests.best_plans import check_verified, optima_ns
from tests.search.spaces import recorded_searches, rented
from tests.seeds import one_each
from tests.small_instances import random_instance

test_searches_are_the_recorded_ones = recorded_searches()


def closer_of(instance: Instance, gap: float) -> Closer:
    """Of exhaustive search to a gap."""
    return Closer(instance, SolveOptions(gap=gap), enumerate_config, TimeTables(instance))


@pytest.mark.parametrize("prices", [(1.0, 1.0), (12.29, 98.32)])
def test_bug_steps_of_half_an_hour_were_closed_below_the_incumbent(
    prices: tuple[float, float],
) -> None:
    """The target of a plan is its own step, to the ns, for up to days, in time and in money."""
    for instance in (random_instance(1), rented(1, prices)):
        config, closer = next(iter(configs(instance))), closer_of(instance, 0.0)
        for step_ns in (2_177_829_861_702, 999_999_999_999_999):
            assert closer.target(config, closer.objective(config, step_ns)) == step_ns


def check(instance: Instance, gap: float) -> None:
    """Search and brute force agree up to the gap, and the verifier with both."""
    values = [
        ns * objective_weight(instance, config)
        for config, ns in optima_ns(instance).items()
        if ns <= (longest_step_ns(instance, config.nodes_used) or ns)
    ]
    options = SolveOptions(gap=gap)
    result = solve(instance, options)
    assert result.status is (Status.OPTIMAL if values else Status.INFEASIBLE)
    if result.objective is not None:
        assert result.objective * (1 - gap) <= min(values) * (1 + 1e-9)
    check_verified(result, options)


@pytest.mark.parametrize("seed", one_each((13, 16, 21, 25, 40, 52, 53, 59, 73, 87, 90), 6))
def test_bug_nodes_without_rent_were_closed_unseen(seed: int) -> None:
    """No plan on the free nodes alone: their configs have none, rather than one that costs 0."""
    check(rented(seed, (1.0, 0.0)), 0.0)


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("seed", one_each(range(30, 60), 30))
def test_money_within_a_time_limit_equals_brute_force(seed: int, gap: float) -> None:
    """The limit is the median of what the configs take; one group is free, the other is not."""
    times = sorted(optima_ns(rented(seed, (0.37, 0.0))).values())
    longest_s = times[len(times) // 2] * 1e-9 if times else None
    check(rented(seed, (0.37, 0.0), longest_s), gap)


def by_bound(instance: Instance, gap: float, bound_ns: int, best_ns: int) -> str:
    """How a config of one node is closed with this bound by a plan of that step on it."""
    config = next(config for config in configs(instance) if sum(config.nodes_used) == 1)
    weight = objective_weight(instance, config)
    task = Task(bound_ns * weight, bound_ns, "work", config)
    return closer_of(instance, gap).by_bound(task, best_ns * weight).record.reason


def test_bug_equal_cost_was_a_nanosecond_short() -> None:
    """A bound that meets the incumbent closes its config: 100000001 * 0.7 / 0.7 is above itself."""
    instance, time_ns = rented(1, (0.7, 0.7)), 100_000_001
    assert by_bound(instance, 0.0, time_ns, time_ns) == "bounded"
    assert by_bound(instance, 0.0, time_ns - 1, time_ns) == "open"


@pytest.mark.parametrize(
    ("bound_ns", "reason"), [(920, "bounded"), (951, "infeasible"), (899, "open")]
)
def test_bug_limit_hid_that_a_bound_was_within_the_gap(bound_ns: int, reason: str) -> None:
    """Incumbent 1000, gap 10 %, limit 950: a bound of 920 closes, though below the limit."""
    assert by_bound(rented(1, (1.0, 1.0), longest_s=950e-9), 0.1, bound_ns, 1000) == reason
