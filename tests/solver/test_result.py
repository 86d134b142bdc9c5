"""A result cannot be built contradicting itself."""

from dataclasses import replace

import pytest

from formulations.instance import Limits
from solver.result import Status, Termination, longest_step_ns, proves
from tests.conftest import present
from tests.hand_made import pipelined_result, planless_result
from tests.random_configs import random_tables


def test_optimal_is_within_the_gap_asked_for() -> None:
    """1 % asked for: a bound 1 % below is enough, one 2 % below is not, and none at all neither."""
    result = replace(pipelined_result(), requested_gap=0.01)
    objective = present(result.objective)
    replace(result, bound=objective * 0.99)
    for bound in (objective * 0.98, None):
        with pytest.raises(ValueError, match=r"^optimal, with gap .* where 0.01 was asked"):
            replace(result, bound=bound)


@pytest.mark.parametrize("status", [Status.INFEASIBLE, Status.UNKNOWN])
def test_plan_belongs_to_statuses_that_have_one(status: Status) -> None:
    """Neither a plan that does not exist, nor a status that needs one without."""
    with pytest.raises(ValueError, match=status.value):
        replace(pipelined_result(), status=status)
    nothing = planless_result(status, Termination.CLOSED)
    with pytest.raises(ValueError, match="feasible"):
        replace(nothing, status=Status.FEASIBLE)


def test_gap_forgives_the_noise_of_floats_alone() -> None:
    assert (proves(1e-13, 0.0), proves(1e-11, 0.0), proves(None, 0.5)) == (True, False, False)


def test_budget_is_the_tighter_of_both() -> None:
    """At 2 USD/h a step of 0.001 USD may take 1.8 s; the time limit of 1 s is tighter."""
    tables = random_tables(1)
    groups = tuple(
        group.but(price_usd_per_hour=2 / sum(tables.config.nodes_used))
        for group in tables.instance.cluster.groups
    )
    limits = Limits(max_step_time_s=1, max_cost_usd_per_step=0.001)
    instance = tables.instance.but(cluster={"groups": groups}, limits=limits)
    assert longest_step_ns(instance, tables.config.nodes_used) == 1_000_000_000
    free = instance.but(limits=Limits(max_cost_usd_per_step=0.001))
    assert longest_step_ns(free, tables.config.nodes_used) == 1_800_000_000
