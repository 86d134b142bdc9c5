"""The log of closed configs: the plan space, the proofs, and what a forged log gives away."""

from typing import Any

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance, SearchSpace
from formulations.space import PlanSpace, configs
from formulations.units import GIB
from solver.document import PlanDocument
from solver.result import Proof
from solver.verify import verify_document
from tests import brute_force
from tests.best_plans import check_space
from tests.certified import certified_document
from tests.certified_cases import CASES, instance
from tests.random_configs import crowded_instance
from tests.resealed import forged
from tests.small_instances import random_instance


def problems(document: PlanDocument, changes: dict[str, Any]) -> tuple[str, ...]:
    """What is found wrong with a forged file."""
    return verify_document(forged(document, changes)).problems


def records(document: PlanDocument) -> list[dict[str, Any]]:
    """The log of configurations as JSON."""
    fields: list[dict[str, Any]] = document.model_dump(mode="json")["closed_configs"]
    return fields


def all_keys(one: Instance) -> list[object]:
    """The verifier's plan space."""
    space = PlanSpace(one)
    return list(space.configs())


def test_plan_space_counted_by_hand() -> None:
    """Two nodes of two GPUs, two blocks, batch 4, b of 1 and 2, both recomputations and ZeROs.

    One node: (dp, pp) = (2, 1) with tp 1: 2 b * 2 * 2 = 8; (1, 2) with tp 1 and (1, 1) with tp 2,
    where one replica leaves one ZeRO: 2 b * 2 each = 8. Together 16. Both nodes: (4, 1) with tp 1,
    b = 1 only: 4; (2, 2) with tp 1: 8; (1, 4) lacks blocks; (2, 1) with tp 2: 8; (1, 2) with tp 2:
    4. Together 24. Half as many where every stage chooses what it recomputes.
    """
    alike = SearchSpace(recompute_per="plan", micro_batch=(1, 2))
    both = all_keys(instance(search=alike.but(idle_nodes=False)))
    assert len(both) == len(set(both)) == 24
    every = all_keys(instance(search=alike))
    assert len(every) == len(set(every)) == 16 + 16 + 24
    assert len(all_keys(instance(search=SearchSpace(micro_batch=(1, 2))))) == (16 + 16 + 24) / 2


@pytest.mark.parametrize(("kv_heads", "degrees"), [(4, {1, 2}), (3, {1}), (1, {1})])
def test_tensor_groups_share_the_heads_evenly(kv_heads: int, degrees: set[int]) -> None:
    """On nodes of two GPUs a degree of 2 needs an even number of key and value heads."""
    one = instance()
    narrow = one.but(workload={"kv_heads": kv_heads})
    assert {config.widest_tp for config in configs(narrow)} == degrees
    check_space(narrow)


def without_first(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record is missing."""
    return log[1:]


def with_first_again(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One stands there twice."""
    return [*log, log[0]]


def with_ruled_out(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One has a micro-batch size that the instance rules out."""
    return [*log, log[0] | {"config": log[0]["config"] | {"micro_batch": 2}}]


@pytest.mark.parametrize(
    ("forgery", "start"),
    [
        (without_first, "closed_configs: missing configurations: found Configuration(degrees="),
        (with_first_again, "closed_configs: closed twice or outside: found Configuration(degrees="),
        (with_ruled_out, "closed_configs: closed twice or outside: found Configuration(degrees="),
    ],
)
def test_the_log_has_every_config_of_the_plan_space_once(forgery: Any, start: str) -> None:
    """The configuration that is missing, or too much, is named."""
    document = CASES["idle"]()
    found = problems(document, {"closed_configs": forgery(records(document))})
    assert any(line.startswith(start) for line in found), found


def proved_by(proof: Proof, document: PlanDocument) -> tuple[int, int]:
    """Index and bound of a record that a closed form closes."""
    return next(
        (i, record.bound_ns)
        for i, record in enumerate(document.closed_configs)
        if record.proof == proof and record.bound_ns is not None
    )


def bounded_document() -> PlanDocument:
    """A plan file with configurations that are closed by their own work bounds."""
    return certified_document(random_instance(8))


def piped_document() -> PlanDocument:
    """A plan file with configurations that pipelines close."""
    return certified_document(crowded_instance(15))


@pytest.mark.parametrize(("more", "accepted"), [(-1, True), (0, True), (1, False)])
def test_work_bound_may_not_be_raised(more: int, accepted: bool) -> None:
    """The bound in the log may be weaker than the verifier's, not stronger by 1 ns."""
    document = bounded_document()
    index, bound = proved_by("work", document)
    found = problems(document, {f"closed_configs.{index}.bound_ns": bound + more})
    assert (found == ()) is accepted


def test_pipeline_bound_may_not_be_raised_above_the_best_plan() -> None:
    """No argument shows a bound that is 1 ns too high."""
    document = piped_document()
    index, _ = proved_by("pipeline", document)
    tables = build_tables(document.instance, document.closed_configs[index].config)
    best = brute_force.optimum_ns(tables)
    assert best is not None
    [line] = problems(document, {f"closed_configs.{index}.bound_ns": best + 1})
    assert line.startswith(f"closed_configs[{index}].bound_ns: found {best + 1}, expected a bound")


def test_search_is_not_taken_at_its_word_where_a_bound_proves_it() -> None:
    """A record of an exhaustive search counts as re-proved if the pipeline bound reaches it."""
    document = piped_document()
    index, _ = proved_by("pipeline", document)
    changed = forged(document, {f"closed_configs.{index}.proof": "enumeration"})
    assert verify_document(changed).checked == verify_document(document).checked


def test_bound_below_the_claim_is_refused() -> None:
    """A record that leaves a better plan possible contradicts lower_bound_s and gap."""
    document = bounded_document()
    index, _ = proved_by("work", document)
    found = problems(document, {f"closed_configs.{index}.bound_ns": 1})
    assert any(line.startswith("lower_bound_s: ") for line in found)
    assert any(line.startswith("gap: ") for line in found)
    assert any(line.startswith(f"closed_configs[{index}].reason: found bounded") for line in found)


def own_record(document: PlanDocument) -> str:
    """Path of the record of the plan's own configuration."""
    [index] = [i for i, one in enumerate(document.closed_configs) if one.config == document.config]
    return f"closed_configs.{index}"


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "open": ({"reason": "open"}, "status: found 1 configurations open"),
    "solved by a bound": ({"proof": "work"}, "closed_configs[I].proof: found work"),
    "no bound": ({"bound_ns": None}, "closed_configs[I].bound_ns: found None"),
    "impossible": (
        {"reason": "infeasible", "bound_ns": None},
        "closed_configs[I]: found infeasible, bound None",
    ),
    "no memory": (
        {"reason": "infeasible", "proof": "memory", "bound_ns": None},
        "closed_configs[I].reason: found infeasible",
    ),
    "no limit": (
        {"reason": "infeasible", "proof": "limit", "bound_ns": None},
        "closed_configs[I].reason: found infeasible",
    ),
    "bound of no plan": (
        {"reason": "infeasible", "proof": "memory", "bound_ns": 5},
        "closed_configs[I].bound_ns: found 5, expected none",
    ),
    "bound above the plan": ({"bound_ns": 10**9}, "closed_configs[I]: found solved, bound 10"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_false_claim_of_the_own_config_is_named(name: str) -> None:
    """The record of the plan's own config can be forged in no way that its plan does not refute."""
    document = CASES["idle"]()
    changes, start = CLAIMS[name]
    path = own_record(document)
    start = start.replace("I", path.rpartition(".")[2])
    found = problems(document, {f"{path}.{key}": value for key, value in changes.items()})
    assert [line for line in found if line.startswith(start)], found


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
