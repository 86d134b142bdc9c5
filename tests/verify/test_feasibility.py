"""What of a plan file its instance and its launch target allow."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, get_args

import pytest

from formulations.costs.tables import build_tables
from formulations.instance.search import RECOMPUTE_WAYS, ScheduleName, SearchSpace
from formulations.instance.targets import TARGETS, Target
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from formulations.space import configs
from solver.document import PlanDocument
from solver.files import sealed
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from solver.verify import Effort, verify_document
from solver.verify.feasibility import check_recomputed, check_target
from solver.verify.findings import Findings
from tests.best_plans import check_space
from tests.brute_force import all_orders
from tests.certified_cases import instance, solved_document
from tests.cramped import cramped_instance, one_degree, recomputing
from tests.hand_made import document_of, pipelined_result
from tests.resealed import forged, resealed
from tests.search.test_enumeration import answer, small_configs
from tests.seeds import one_each
from tests.small_instances import layer, workload
from tests.stage_degrees import stage_instance
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


@cache
def one_chunk() -> PlanDocument:
    """An optimum of which some stages recompute."""
    return recomputing(cramped_instance(seed)[0] for seed in range(60))


@cache
def several_chunks() -> PlanDocument:
    """The same of devices with several chunks."""
    return recomputing(one_degree(seed, "interleaved") for seed in range(60))


def changed(document: PlanDocument, chunks: int, way: Recompute, more: int) -> PlanDocument:
    """Another recomputation in the first chunks of a device that recomputes."""
    replica, pp = document.replicas[0], document.config.pp if document.config else 1
    k = next(k for k, stage in enumerate(replica.stages) if stage.recomputed.blocks) % pp
    stages = list(replica.stages)
    for s in range(k, len(stages), pp)[:chunks]:
        blocks = 0 if way == "none" else max(0, stages[s].recomputed.blocks + more)
        other = Recomputed.model_construct(way=way, blocks=blocks)
        stages[s] = stages[s].but(recomputed=other)
    replicas = (replica.but(stages=tuple(stages)), *document.replicas[1:])
    return sealed(document.but(replicas=replicas))


@pytest.mark.parametrize("chunks", [1, 9])
@pytest.mark.parametrize(
    ("way", "more"), [("none", 0), ("selective", 0), ("selective", 1), ("full", -1), ("full", 100)]
)
def test_changed_recomputation_is_refused(chunks: int, way: Recompute, more: int) -> None:
    """Other blocks, or another way; of one chunk, or of all of a device."""
    for document in (one_chunk(), several_chunks()):
        other, unproved = changed(document, chunks, way, more), Effort(prove="nothing")
        assert verify_document(document, unproved).problems == ()
        if other.replicas != document.replicas:  # as it is stated
            assert verify_document(other, unproved).problems != ()


def test_only_full_recomputation_may_be_of_some_blocks() -> None:
    """One of two."""
    findings = {way: Findings() for way in ("selective", "full")}
    for way in ("selective", "full"):
        one_of_two = Recomputed.model_construct(way=way, blocks=1)
        check_recomputed(one_of_two, RECOMPUTE_WAYS, 2, "", findings[way])
    assert [bool(of_way.problems) for of_way in findings.values()] == [True, False]


def test_bug_stage_without_blocks_recomputes_nothing() -> None:
    """`selective`, of none of its no blocks, was as good as `none`."""
    ways = ("none", "selective", "full")
    degrees = {"pipeline_parallel": (2,), "data_parallel": (2,), "idle_nodes": False}
    search = SearchSpace.model_validate(
        degrees | {"recompute": ways, "embedding_only_stages": True}
    )
    chain = [layer(kind, 10, 10**6, 10**6) for kind in ("embedding", "block", "head")]
    made = instance(search=search).but(workload=workload(chain, 4, 10**6, tied=False))
    document = solved_document(made)
    stages = [stage.layers for stage in document.replicas[0].stages]
    k = next(k for k, layers in enumerate(stages) if layers in [(0, 1), (2, 3)])
    changes = {f"replicas.0.stages.{k}.recomputed.way": "selective"}
    assert verify_document(document).complete
    assert verify_document(forged(document, changes), Effort(prove="nothing")).problems != ()


def test_forged_places_are_refused() -> None:
    """Other degrees of a stage of its own, or GPUs that are not next, under a seal that fits."""
    made = stage_instance(0)
    best = next(one for one in (answer(made, s) for s in small_configs(made)) if one.plan)
    result = replace(solve(made), plan=best.plan, step_time_ns=best.step_time_ns)
    document, field = build_document(result, SolveOptions()), "replicas.0.stages.0"
    for changes in (
        {f"{field}.degrees.tp": lambda tp: 2 * tp},
        {f"{field}.gpus": lambda gpus: [gpu + 1 for gpu in gpus]},
    ):
        problems = verify_document(resealed(document, changes)).problems
        assert any("replicas[0].stages[0]" in problem for problem in problems), changes
