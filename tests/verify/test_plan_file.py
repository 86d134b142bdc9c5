"""The verifier's own view of a plan: constraints, costs, claims."""

from itertools import product
from typing import Any

import pytest

from formulations.units import GIB
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Termination
from solver.search.driver import solve
from solver.verify import Effort, Verification, verify_document
from tests.certified_cases import CASES
from tests.recorded import Cases, as_recorded, recorded
from tests.small_instances import spot_instance, with_groups
from tests.verify.forgeries import forged, judged


def unproved(document: PlanDocument) -> Verification:
    return verify_document(document, Effort(prove="nothing"))


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    return verify_document(forged(document, changes)).problems


#: Fields that are checked elsewhere: the layout, the log and the instance.
ELSEWHERE = ("config", "node_order", "target", "closed_configs", "instance")


@pytest.mark.parametrize("case", ["cheapest", "infeasible", "interrupted", "on_spot"])
def test_what_is_said_of_forged_figures(case: str) -> None:
    """Of status, times, memory, money and gap; all that does not fit is refused."""
    document = CASES[case]()
    fields = [name for name in PlanDocument.model_fields if not name.startswith(ELSEWHERE)]
    fields += ["instance.limits.max", "instance.objective"]
    verdicts = judged(case, document, unproved, " ".join(fields), number=1, seal=forged)
    as_recorded("verify_plan_file", verdicts)


@pytest.mark.parametrize("ended", Termination)
@pytest.mark.parametrize("case", ["pipelined", "infeasible", "interrupted"])
def test_bug_how_a_search_ended_was_taken_at_its_word(case: str, ended: Termination) -> None:
    """A log with open configs is not of a search that closed all, nor one without of any other."""
    document = CASES[case]()
    told = "termination is closed: found"
    found = problems(document, {"termination": ended})
    closed = ended is Termination.CLOSED
    assert any(line.startswith(told) for line in found) == (closed != (case != "interrupted"))
    if document.config is not None:
        no_log = {"closed_configs": [], "termination": ended}
        assert any(line.startswith(told) for line in problems(document, no_log)) == closed


@pytest.mark.parametrize(("spare", "expected"), [(0, True), (-1, False)])
def test_memory_may_be_filled_to_the_last_byte(spare: int, expected: bool) -> None:
    document = CASES["idle"]()
    limit = max(stage.memory_bytes for one in document.replicas for stage in one.stages) + spare
    stages = [(r, k) for r, one in enumerate(document.replicas) for k in range(len(one.stages))]
    changes = {f"replicas.{r}.stages.{k}.memory_limit_bytes": limit for r, k in stages}
    gpus = {f"instance.cluster.groups.{j}.gpu.memory_bytes": limit for j in (0, 1)}
    found = problems(document, changes | gpus)
    assert (not any("memory_bytes: found" in line for line in found)) is expected


def test_bug_a_plan_space_far_beyond_the_log_was_listed() -> None:
    """A file may name 10^12 choices of nodes; that some are missing is known after a few."""
    document = CASES["idle"]()
    one, *_ = document.model_dump(mode="json")["instance"]["cluster"]["groups"]
    groups = [one | {"name": name, "nodes": 10**4} for name in "abc"]
    found = problems(document, {"instance.cluster.groups": groups})
    assert any("missing configurations" in problem for problem in found)


def test_dearer_terms_are_refused() -> None:
    """A consistent plan file on demand, where spot costs less, is not the best one."""
    instance = spot_instance(11)  # with nodes that are taken back
    plain = build_document(solve(with_groups(instance, spot=None)), SolveOptions())
    offered = [group.model_dump(mode="json") for group in instance.cluster.groups]
    checked = verify_document(forged(plain, {"instance.cluster.groups": offered}))
    assert any(problem.startswith("renting.on_spot") for problem in checked.problems)


REASONS = ("infeasible", "bounded", "solved", "open")
PROOFS = ("memory", "enumeration")


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
