"""Findings side by side: contradictions are seen, agreement is not called one."""

from dataclasses import replace

import pytest

from solver.comparison import Comparison, Finding
from solver.result import Status, Termination
from tests.small_instances import random_instance

PROOF = Finding(
    method="exact",
    status=Status.FEASIBLE,
    termination=Termination.TIME_LIMIT,
    config=None,
    step_time_ns=1250,
    judged_ns=1250,
    objective=1250.0,
    bound=1000.0,
    runtime_s=3.0,
)
PLAN = replace(
    PROOF, method="local", step_time_ns=1100, judged_ns=1100, objective=1100.0, bound=None
)
NONE = replace(PROOF, status=Status.INFEASIBLE, step_time_ns=None, objective=None, bound=None)
OPTIMAL = replace(PROOF, status=Status.OPTIMAL, requested_gap=0.1)
BELOW = "exact proves that no plan is below {}, {} has one of {}"


def compare(*findings: Finding) -> Comparison:
    return Comparison(random_instance(0), findings)


@pytest.mark.parametrize(
    "findings",
    [
        # up to the noise of a product of floats
        (PROOF, PLAN, replace(PLAN, objective=1000 * (1 - 1e-12), judged_ns=1000)),
        (NONE, replace(NONE, method="milp")),
        (replace(OPTIMAL, requested_gap=0.25),),
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
        ((OPTIMAL,), "exact: optimal by its own account, with gap 0.2"),
    ],
)
def test_contradiction_is_told(findings: tuple[Finding, ...], line: str) -> None:
    [found] = compare(*findings).contradictions
    assert line in found
