"""What of a plan file its instance and its launch target allow."""

from itertools import product
from typing import Any, get_args

import pytest

from formulations.costs.tables import build_tables
from formulations.instance.search import RECOMPUTE_WAYS, ScheduleName, SearchSpace
from formulations.instance.targets import TARGETS, Target
from formulations.space import configs
from solver.verify import verify_document
from solver.verify.feasibility import check_target
from solver.verify.findings import Findings
from tests.best_plans import check_space
from tests.brute_force import all_orders
from tests.hand_made import document_of, pipelined_result
from tests.resealed import forged
from tests.seeds import one_each
from tests.unlike_degrees import unlike_instance

SPACES: list[dict[str, Any]] = [
    *({"degrees": per} for per in ("uniform", "per_group")),
    *({"schedule": (name,)} for name in get_args(ScheduleName)),
    *({"micro_batches": shares} for shares in ("even", "uneven")),
    *({"recompute": (way,)} for way in RECOMPUTE_WAYS),
    *({"recompute_per": per} for per in ("plan", "stage")),
    *({"zero": (zero,)} for zero in (0, 1, 2)),
    *({"embedding_only_stages": flag} for flag in (False, True)),
]


@pytest.mark.parametrize(("target", "fields"), [*product(TARGETS, SPACES)])
def test_values_that_a_target_cannot_run_are_refused(
    target: Target, fields: dict[str, Any]
) -> None:
    """One odd value in a plan space of its own, by the rules of the target."""
    fitting = {"schedule": ("1f1b",), "recompute": ("none",), "recompute_per": "plan"}
    search = SearchSpace.model_validate({"target": target, "zero": (0,), **fitting, **fields})
    ((name, value),) = fields.items()
    instance = pipelined_result().instance.but(search=search)
    document = document_of(pipelined_result()).but(instance=instance, target=target)
    findings = Findings()
    check_target(document, findings)
    one = value[0] if isinstance(value, tuple) else value
    free = target == "flagscale" and name == "recompute"  # all stages alike
    runs = free or TARGETS[target].allows(name, one)
    if name == "zero" and target == "torchtitan":
        runs = True  # by the number of stages, below
    assert (not findings.problems) == runs


def test_forged_target_is_found() -> None:
    """A status said of another target than the instance's, or of a plan space too wide for it."""
    document = document_of(pipelined_result())
    renamed = verify_document(forged(document, {"target": "megatron"})).problems
    assert any(line.startswith("target: found 'megatron'") for line in renamed)
    both = {"target": "megatron", "instance.search.target": "megatron"}
    narrowed = verify_document(forged(document, both)).problems
    assert any(line.startswith("instance.search.recompute_per: found stage") for line in narrowed)


@pytest.mark.parametrize("seed", one_each(range(60), 6))
def test_both_list_the_same_unlike_degrees(seed: int) -> None:
    """Of node groups with degrees of their own, for FlagScale and for any target."""
    made = unlike_instance(seed)
    workload = made.workload.but(tied_embeddings=seed % 3 == 0)
    fields = {"micro_batches": "even", "schedule": ("1f1b",), "zero": (seed % 2,)}
    for target in ("flagscale", "any"):
        own = {"target": target, "sequence_parallel": seed % 4 > 0, **fields}
        instance = made.but(search=own, workload=workload)
        check_space(instance)
        if target == "flagscale":
            listed = set(configs(instance))
            for config in configs(instance.but(search={"target": "any"})):
                orders = all_orders(build_tables(instance, config))
                assert (config in listed) == bool(orders), "those that it can run in some order"
