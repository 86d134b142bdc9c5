"""Stages that recompute otherwise, or lie elsewhere, than the figures of a plan file are of."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from formulations.instance import SearchSpace
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from solver.document import PlanDocument
from solver.files import sealed
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from solver.verify import Effort, verify_document
from tests import certified_cases
from tests.cramped import cramped_instance, one_degree, recomputing
from tests.resealed import forged
from tests.search.test_enumeration import answer, small_configs
from tests.small_instances import layer, workload
from tests.stage_degrees import stage_instance


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
        blocks = max(0, stages[s].recomputed.blocks + more)
        other = Recomputed.model_construct(way=way, blocks=0 if way == "none" else blocks)
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
        other = changed(document, chunks, way, more)
        if other.replicas != document.replicas:  # as it is stated
            assert verify_document(other, Effort(prove="nothing")).problems != ()


def test_the_plans_themselves_have_no_problems() -> None:
    """What was changed above was right before."""
    for document in (one_chunk(), several_chunks()):
        assert verify_document(document).complete


def test_bug_stage_without_blocks_recomputes_nothing() -> None:
    """`selective`, of none of its no blocks, was as good as `none`."""
    chain = [layer(kind, 10, 10**6, 10**6) for kind in ("embedding", "block", "head")]
    search = SearchSpace(
        pipeline_parallel=(2,),
        data_parallel=(2,),
        idle_nodes=False,
        recompute=("none", "selective", "full"),
        embedding_only_stages=True,
    )
    instance = certified_cases.instance(search=search)
    instance = instance.but(workload=workload(chain, 4, 10**6, tied=False))
    document = build_document(solve(instance), SolveOptions())
    stages = [stage.layers for stage in document.replicas[0].stages]
    k = next(k for k, layers in enumerate(stages) if layers in [(0, 1), (2, 3)])
    changes = {f"replicas.0.stages.{k}.recomputed.way": "selective"}
    assert verify_document(document).complete
    assert verify_document(forged(document, changes), Effort(prove="nothing")).problems != ()


def test_forged_places_are_refused() -> None:
    """Other degrees of a stage, or GPUs that are not next, under a seal that fits."""
    instance = stage_instance(0)
    found = next(one for one in (answer(instance, s) for s in small_configs(instance)) if one.plan)
    result = replace(solve(instance), plan=found.plan, step_time_ns=found.step_time_ns)
    document = build_document(result, SolveOptions())
    first = document.replicas[0]
    stage = first.stages[0]
    cases: list[dict[str, Any]] = [
        {"degrees": stage.degrees.but(tp=2 * stage.degrees.tp)},
        {"gpus": tuple(gpu + 1 for gpu in stage.gpus)},
    ]
    for fields in cases:
        stages = (stage.model_copy(update=fields), *first.stages[1:])
        replicas = (first.but(stages=stages), *document.replicas[1:])
        report = verify_document(sealed(document.but(replicas=replicas)))
        assert any("replicas[0].stages[0]" in str(one) for one in report.problems), fields
