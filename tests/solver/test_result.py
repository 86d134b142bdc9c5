"""A result cannot be built contradicting itself; answers of several methods can, and it is told."""

from dataclasses import replace

import pytest

from formulations.instance import Limits
from solver.result import Comparison, Finding, Status, Termination, longest_step_ns, proves
from tests.conftest import present
from tests.hand_made import pipelined_result, planless_result
from tests.random_configs import random_tables
from tests.small_instances import random_instance, with_groups


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
    price = 2 / sum(tables.config.nodes_used)
    limits = Limits(max_step_time_s=1, max_cost_usd_per_step=0.001)
    instance = with_groups(tables.instance, price_usd_per_hour=price).but(limits=limits)
    assert longest_step_ns(instance, tables.config.nodes_used) == 1_000_000_000
    free = instance.but(limits=Limits(max_cost_usd_per_step=0.001))
    assert longest_step_ns(free, tables.config.nodes_used) == 1_800_000_000


PROOF = Finding(
    **vars(
        replace(
            pipelined_result(),
            status=Status.FEASIBLE,
            step_time_ns=1250,
            objective=1250.0,
            bound=1000.0,
        )
    ),
    judged_ns=1250,
)
PLAN = replace(
    PROOF, method="local", step_time_ns=1100, judged_ns=1100, objective=1100.0, bound=None
)
NONE = Finding(**vars(planless_result(Status.INFEASIBLE, Termination.CLOSED)))
BELOW = "exact proves that no plan is below {}, {} has one of {}"


def compare(*findings: Finding) -> Comparison:
    return Comparison(random_instance(0), findings)


@pytest.mark.parametrize(
    "findings",
    [
        # up to the noise of a product of floats
        (PROOF, PLAN, replace(PLAN, objective=1000 * (1 - 1e-12), judged_ns=1000)),
        (NONE, replace(NONE, method="milp")),
    ],
)
def test_plans_above_all_bounds_agree(findings: tuple[Finding, ...]) -> None:
    findings = tuple(replace(f, step_time_ns=f.judged_ns) for f in findings)
    assert compare(*findings).contradictions == ()


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ((replace(PROOF, bound=1101.0), PLAN), BELOW.format(1101, "local", 1100)),
        ((PLAN, replace(PROOF, bound=1101.0)), BELOW.format(1101, "local", 1100)),
        ((replace(PROOF, bound=1300.0),), BELOW.format(1300, "exact", 1250)),
        ((NONE, PLAN), "exact proves that there is no plan, local has one"),
        ((replace(PLAN, judged_ns=1101),), "1101 ns simulated"),
        ((replace(PLAN, judged_ns=None),), "does not fit"),
    ],
)
def test_contradiction_is_told(findings: tuple[Finding, ...], line: str) -> None:
    [found] = compare(*findings).contradictions
    assert line in found
