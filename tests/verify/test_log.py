"""The log of closed configs: the plan space, the proofs, and what a forged log gives away."""

from typing import Any

import pytest

from formulations.instance import Instance, SearchSpace
from formulations.space import PlanSpace, configs
from formulations.units import GIB
from solver.document import PlanDocument
from solver.verify import verify_document
from tests.best_plans import check_space
from tests.certified_cases import CASES, instance
from tests.resealed import forged


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    """What is found wrong with a forged file."""
    return verify_document(forged(document, changes)).problems


def records(document: PlanDocument) -> list[dict[str, Any]]:
    """The log of configurations as JSON."""
    fields: list[dict[str, Any]] = document.model_dump(mode="json")["closed_configs"]
    return fields


def num_configs(made: Instance) -> int:
    """All different ones of the plan space."""
    return len(set(PlanSpace(made).configs()))


def test_plan_space_counted_by_hand() -> None:
    """Two nodes of two GPUs, two blocks, batch 4, b of 1 and 2, both recomputations and ZeROs.

    One node: (dp, pp) = (2, 1) with tp 1: 2 b * 2 * 2 = 8; (1, 2) with tp 1 and (1, 1) with tp 2,
    where one replica leaves one ZeRO: 2 b * 2 each = 8. Together 16. Both nodes: (4, 1) with tp 1,
    b = 1 only: 4; (2, 2) with tp 1: 8; (1, 4) lacks blocks; (2, 1) with tp 2: 8; (1, 2) with tp 2:
    4. Together 24. Half as many where every stage chooses what it recomputes.
    """
    alike = SearchSpace(recompute_per="plan", micro_batch=(1, 2))
    assert num_configs(instance(search=alike.but(idle_nodes=False))) == 24
    assert num_configs(instance(search=alike)) == 16 + 16 + 24
    assert num_configs(instance(search=SearchSpace(micro_batch=(1, 2)))) == (16 + 16 + 24) / 2


@pytest.mark.parametrize(("kv_heads", "degrees"), [(4, {1, 2}), (3, {1}), (1, {1})])
def test_tensor_groups_share_the_heads_evenly(kv_heads: int, degrees: set[int]) -> None:
    """On nodes of two GPUs a degree of 2 needs an even number of key and value heads."""
    narrow = instance().but(workload={"kv_heads": kv_heads})
    assert {config.widest_tp for config in configs(narrow)} == degrees
    check_space(narrow)


@pytest.mark.parametrize(
    ("more", "kept", "start"),
    [
        ([], slice(1, None), "missing configurations"),
        ([{}], slice(None), "closed twice or outside"),
        ([{"micro_batch": 2}], slice(None), "closed twice or outside"),
    ],
)
def test_the_log_has_every_config_of_the_plan_space_once(
    more: list[dict[str, Any]], kept: slice, start: str
) -> None:
    """The configuration that is missing, twice there, or ruled out by the instance, is named."""
    document = CASES["idle"]()
    log = records(document)
    extra = [log[0] | {"config": log[0]["config"] | fields} for fields in more]
    found = problems(document, {"closed_configs": [*log[kept], *extra]})
    line = f"closed_configs: {start}: found Configuration(degrees="
    assert any(problem.startswith(line) for problem in found), found


def test_bound_below_the_claim_is_refused() -> None:
    """A record that leaves a better plan possible contradicts lower_bound_s and gap."""
    document = CASES["idle"]()
    log = enumerate(document.closed_configs)
    index = next(i for i, record in log if record.reason == "bounded")
    found = problems(document, {f"closed_configs.{index}.bound_ns": 1})
    starts = ("lower_bound_s: ", "gap: ", f"closed_configs[{index}].reason: found bounded")
    assert all(any(line.startswith(start) for line in found) for start in starts), found


NO_PLAN = {"reason": "infeasible", "bound_ns": None}
CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"reason": "open"}, "status: found 1 configurations open"),
    ({"proof": "work"}, "closed_configs[I].proof: found work"),
    ({"bound_ns": None}, "closed_configs[I].bound_ns: found None"),
    (NO_PLAN, "closed_configs[I]: found infeasible, bound None"),
    (NO_PLAN | {"proof": "memory"}, "closed_configs[I].reason: found infeasible"),
    (NO_PLAN | {"proof": "limit"}, "closed_configs[I].reason: found infeasible"),
    (NO_PLAN | {"bound_ns": 5}, "closed_configs[I].bound_ns: found 5, expected none"),
    ({"bound_ns": 10**9}, "closed_configs[I]: found solved, bound 10"),
]


@pytest.mark.parametrize(("changes", "start"), CLAIMS)
def test_false_claim_of_the_own_config_is_named(changes: dict[str, Any], start: str) -> None:
    """The record of the plan's own config can be forged in no way that its plan does not refute."""
    document = CASES["idle"]()
    [index] = [i for i, one in enumerate(document.closed_configs) if one.config == document.config]
    solved = {"reason": "solved", "proof": "enumeration"} | changes
    found = problems(document, {f"closed_configs.{index}.{key}": v for key, v in solved.items()})
    assert [line for line in found if line.startswith(start.replace("I", str(index)))], found


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
