"""What an incumbent, a limit and a rent close, held against brute force."""

from dataclasses import replace

import pytest

from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import configs
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.result import Status, max_step_time_ns, objective_weight
from solver.search.driver import solve
from solver.search.enumeration import enumerate_config
from solver.search.fathoming import Closer, Cutoffs, Task
from tests.best_plans import check_verified, optima_ns
from tests.seeds import one_each
from tests.small_instances import random_instance


def rented(seed: int, prices: tuple[float, ...], longest_s: float | None = None) -> Instance:
    """A random instance that minimises money, its groups at these prices; two stages at most."""
    instance = random_instance(seed)
    groups = tuple(
        group.but(price_usd_per_hour=price)
        for group, price in zip(instance.cluster.groups, prices, strict=False)
    )
    update = {
        "cluster": instance.cluster.but(groups=groups),
        "objective": instance.objective.but(minimize="cost_per_step"),
        "search": instance.search.but(pipeline_parallel=(1, 2)),
        "limits": instance.limits.but(max_step_time_s=longest_s),
    }
    return instance.model_copy(update=update)


@pytest.mark.parametrize("prices", [(1.0, 1.0), (12.29, 98.32)])
def test_bug_steps_of_half_an_hour_were_closed_below_the_incumbent(
    prices: tuple[float, float],
) -> None:
    """The target of a plan is its own step, to the ns, for up to days, in time and in money."""
    for instance in (random_instance(1), rented(1, prices)):
        config, cutoffs = next(iter(configs(instance))), Cutoffs(instance, 0.0)
        for step_ns in (2_177_829_861_702, 999_999_999_999_999):
            assert cutoffs.target(config, cutoffs.objective(config, step_ns)) == step_ns


def optima(instance: Instance) -> dict[Configuration, int]:
    """Least step time of every configuration that has a plan within the limits, by brute force."""
    return {
        config: ns
        for config, ns in optima_ns(instance).items()
        if ns <= (max_step_time_ns(instance, config) or ns)
    }


def check(instance: Instance, gap: float) -> None:
    """Search and brute force agree up to the gap, and the verifier with both."""
    values = [ns * objective_weight(instance, one) for one, ns in optima(instance).items()]
    options = SolveOptions(gap=gap)
    result = solve(instance, options)
    assert result.status is (Status.OPTIMAL if values else Status.INFEASIBLE)
    if result.objective is not None:
        assert result.objective * (1 - gap) <= min(values) * (1 + 1e-9)
    check_verified(result, options)


@pytest.mark.parametrize("seed", one_each((13, 16, 21, 25, 40, 52, 53, 59, 73, 87, 90), 3))
def test_bug_nodes_without_rent_were_closed_unseen(seed: int) -> None:
    """No plan on the free nodes alone: their configs have none, rather than one that costs 0."""
    check(rented(seed, (1.0, 0.0)), 0.0)


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("seed", one_each(range(30, 60), 10))
def test_money_within_a_time_limit_equals_brute_force(seed: int, gap: float) -> None:
    """The limit is the median of what the configs take; one group is free, the other is not."""
    times = sorted(optima(rented(seed, (0.37, 0.0))).values())
    longest_s = times[len(times) // 2] * 1e-9 if times else None
    check(rented(seed, (0.37, 0.0), longest_s), gap)


def closer_of(instance: Instance, gap: float = 0.0) -> Closer:
    """The closer of the exact search."""
    options = SolveOptions(gap=gap)
    return Closer(instance, options, enumerate_config, TimeTables(instance))


def test_bug_equal_cost_was_a_nanosecond_short() -> None:
    """A bound that meets the incumbent closes its config: 100000001 * 0.7 / 0.7 is above itself."""
    instance = rented(1, (0.7, 0.7))
    config = next(one for one in configs(instance) if sum(one.nodes_used) == 1)
    weight = objective_weight(instance, config)
    time_ns = 100_000_001
    assert time_ns * weight / weight > time_ns
    task = Task(time_ns * weight, time_ns, "work", config)
    assert closer_of(instance).by_bound(task, time_ns * weight).record.reason == "bounded"


def test_bug_limit_hid_that_a_bound_was_within_the_gap() -> None:
    """Incumbent 1000, gap 10 %, limit 950: a bound of 920 closes, though below the limit."""
    instance = rented(1, (1.0, 1.0), longest_s=950e-9)
    config = next(one for one in configs(instance) if sum(one.nodes_used) == 1)
    closer, task = closer_of(instance, 0.1), Task(920.0, 920, "work", config)
    assert closer.by_bound(task, 1000.0).record.reason == "bounded"
    late = replace(task, bound_ns=951)
    assert closer.by_bound(late, 1000.0).record.reason == "infeasible"
    early = replace(task, bound_ns=899)
    assert closer.by_bound(early, 1000.0).record.reason == "open"


@pytest.mark.parametrize("gap", [0.0, 0.05])
@pytest.mark.parametrize("seed", one_each(range(40), 3))
def test_records_claim_what_the_result_needs(seed: int, gap: float) -> None:
    """The least bound is that of the result; none is more than a nanosecond of step above it."""
    instance = rented(seed, (1.0, 3.0, 7.0))
    result = solve(instance, SolveOptions(gap=gap))
    if result.objective is None or result.bound is None:
        pytest.skip("no plan")
    for record in result.log.configs:
        if record.bound_ns is not None:
            weight = objective_weight(instance, record.config)
            assert result.bound <= record.bound_ns * weight * (1 + 1e-12)
            needed = max(result.bound, result.objective * (1 - gap))
            assert record.bound_ns * weight <= needed + weight
