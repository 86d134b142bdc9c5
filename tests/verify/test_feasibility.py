"""What of a plan file its instance and its launch target allow."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from formulations.instance.search import SearchSpace
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from solver.verify import Effort, Verification, verify_document
from tests.certified_cases import CASES, instance, solved_document
from tests.random_configs import one_degree, recomputing
from tests.recorded import as_recorded
from tests.search.test_enumeration import answer, small_configs
from tests.small_instances import layer, workload
from tests.stage_degrees import stage_instance
from tests.verify.forgeries import forged, judged


def per_stage() -> PlanDocument:
    made = stage_instance(0)
    best = next(one for one in (answer(made, s) for s in small_configs(made)) if one.plan)
    result = replace(solve(made), plan=best.plan, step_time_ns=best.step_time_ns)
    return build_document(result, SolveOptions())


PLANS: dict[str, Callable[[], PlanDocument]] = {
    **{name: CASES[name] for name in ("pipelined", "shared")},
    "per stage": per_stage,
    "chunks": lambda: recomputing(one_degree(seed, "interleaved") for seed in range(60)),
}
#: Fields of the layout, and what of the instance decides which are of the plan space.
LAYOUT = (
    "config. node_order target replicas.micro_batches replicas.stages.layers replicas.stages.node "
    "replicas.stages.gpus replicas.stages.degrees replicas.stages.recomputed instance.search "
    "instance.workload.kv_heads instance.limits.max_price instance.cluster.groups.name"
)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_said_of_forged_layouts(name: str) -> None:
    """What is not of the plan space, or not how its target lays plans out, is named."""

    def verify(document: PlanDocument) -> Verification:
        return verify_document(document, Effort(prove="nothing"))

    verdicts = judged(name, PLANS[name](), verify, LAYOUT, number=1, seal=forged)
    as_recorded("verify_feasibility", verdicts)


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


def test_a_stage_without_layers_is_refused() -> None:
    layers = {"replicas.0.stages.0.layers": (0, 0), "replicas.0.stages.1.layers": (0, 4)}
    problems = verify_document(
        forged(CASES["profiled"](), layers), Effort(prove="nothing")
    ).problems
    text = "found (0, 0), expected at least one of the layers up to 4"
    assert problems == (f"replicas[0].stages[0].layers: {text}",)


def test_the_first_blocks_of_a_stage_may_be_recomputed_alone() -> None:
    degrees = {"pipeline_parallel": (2,), "data_parallel": (2,), "idle_nodes": False}
    search = SearchSpace.model_validate(degrees | {"recompute": ("none", "full")})
    chain = [layer(kind, 10, 10**6, 10**6) for kind in ("embedding", *["block"] * 8, "head")]
    made = instance(search=search).but(workload=workload(chain, 4, 10**6, tied=False))
    for blocks, refused in ((1, False), (9, True)):
        changes = {
            f"replicas.{r}.stages.0.recomputed.{name}": value
            for r in range(2)
            for name, value in (("way", "full"), ("blocks", blocks))
        }
        document = forged(solved_document(made), changes)
        problems = verify_document(document, Effort(prove="nothing")).problems
        assert any(".recomputed.blocks" in text for text in problems) == refused, problems
