"""The log of closed configs: the plan space, the proofs, and what a forged log gives away."""

from itertools import product
from typing import Any

import pytest

from formulations.units import GIB
from solver.document import PlanDocument
from solver.verify import verify_document
from tests.certified_cases import CASES
from tests.recorded import Cases, as_recorded, recorded
from tests.resealed import forged
from tests.verify.forgeries import judged

REASONS = ("infeasible", "bounded", "solved", "open")
PROOFS = ("memory", "enumeration")


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    return verify_document(forged(document, changes)).problems


def records(document: PlanDocument) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = document.model_dump(mode="json")["closed_configs"]
    return fields


@pytest.mark.parametrize("case", ["idle", "interrupted", "infeasible"])
def test_what_is_said_of_forged_logs(case: str) -> None:
    """Of a record too few, too many or of another configuration, and of false claims."""
    fields = "closed_configs configs termination"
    verdicts = judged(case, CASES[case](), verify_document, fields, number=1, seal=forged)
    as_recorded("verify_log", verdicts)


@recorded("verify_log")
def test_what_is_said_of_the_own_config() -> Cases:
    """The record of the plan's own config can be forged in no way that its plan does not refute."""
    document = CASES["idle"]()
    [index] = [i for i, one in enumerate(document.closed_configs) if one.config == document.config]
    for reason, proof, bound_ns in product(REASONS, PROOFS, (None, 5, 10**9)):
        changes = {"reason": reason, "proof": proof, "bound_ns": bound_ns}
        path = f"closed_configs.{index}"
        lines = problems(document, {f"{path}.{key}": value for key, value in changes.items()})
        yield f"own {reason} {proof} {bound_ns}", [line.partition(",")[0] for line in lines]


def test_limit_proves_configs_infeasible() -> None:
    """A step limit of 1 us is below every bound, so all configs are closed by it; 10^6 s is not."""
    document = CASES["infeasible"]()
    log = [record | {"proof": "limit"} for record in records(document)]
    roomy = {f"instance.cluster.groups.{j}.gpu.memory_bytes": 8 * GIB for j in (0, 1)}
    limited = roomy | {"closed_configs": log, "instance.limits.max_step_time_s": 1e-6}
    assert problems(document, limited) == ()
    loose = limited | {"instance.limits.max_step_time_s": 1e6}
    assert len(problems(document, loose)) == len(log)


def test_plan_without_a_log_claims_no_bound() -> None:
    """A heuristic's plan is verified as a plan; a bound or optimality would need a log."""
    nothing = {"closed_configs": [], "termination": "heuristic"}
    modest = nothing | {"status": "feasible", "lower_bound_s": None, "gap": None}
    document = CASES["idle"]()
    assert problems(document, modest) == ()
    found = problems(document, nothing)
    assert {line.partition(":")[0] for line in found} == {"status", "lower_bound_s", "gap"}
