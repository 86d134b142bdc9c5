"""Plans whose stages recompute as little as fits: engines, models, verifier and brute force."""

from functools import cache

import pytest

from formulations.instance import SearchSpace
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed
from solver.document import PlanDocument
from solver.files import sealed
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.search.driver import solve
from solver.verify import Effort, verify_document
from tests import certified_cases
from tests.best_plans import least_ns
from tests.cramped import check_optimum, cramped_instance, one_degree, recomputing
from tests.resealed import forged
from tests.seeds import one_each
from tests.small_instances import layer, workload

SCHEDULES = ("1f1b", "gpipe", "zb-h1")


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_search_finds_what_brute_force_finds(seed: int) -> None:
    """The optimum over all shapes, splits, orders, shares and recomputation; verify proves it."""
    instance = one_degree(seed, SCHEDULES[seed % 3])
    check_optimum(instance, least_ns(instance))


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("seed", one_each(range(24), 8))
def test_models_find_what_the_search_finds(seed: int, method: str) -> None:
    """CP-SAT and MILP prove the optimum of the exact search."""
    instance, shape = cramped_instance(seed, SCHEDULES[seed % 3])
    instance = instance.but(search={"pipeline_parallel": (shape.pp,)})
    exact = solve(instance)
    found = solve(instance, SolveOptions(method=method))  # type: ignore[arg-type]
    assert (found.status, found.step_time_ns) == (exact.status, exact.step_time_ns)


@cache
def some_optimum() -> PlanDocument:
    """Of a cramped instance, where some stages recompute."""
    return recomputing(cramped_instance(seed)[0] for seed in range(60))


@pytest.mark.parametrize("way", ["none", "selective", "full"])
@pytest.mark.parametrize("more", [-1, 1, 100])
def test_changed_recomputation_is_refused(way: Recompute, more: int) -> None:
    """Other blocks, or another way, than the figures of the plan are of."""
    document = some_optimum()
    replica = document.replicas[0]
    k = next(k for k, stage in enumerate(replica.stages) if stage.recomputed.blocks)
    stated = replica.stages[k].recomputed
    forged = Recomputed.model_construct(way=way, blocks=max(0, stated.blocks + more))
    stage = replica.stages[k].but(recomputed=forged)
    stages = (*replica.stages[:k], stage, *replica.stages[k + 1 :])
    changed = replica.but(stages=stages)
    replicas = (changed, *document.replicas[1:])
    other = sealed(document.but(replicas=replicas))
    assert verify_document(document, Effort()).problems == ()
    assert verify_document(other, Effort()).problems != ()


def test_bug_stage_without_blocks_recomputes_nothing() -> None:
    """`selective`, of none of its no blocks, was as good as `none`."""
    layers = ("embedding", "block", "head")
    chain = [layer(kind, 10, 10**6, 10**6) for kind in layers]
    search = SearchSpace(
        pipeline_parallel=(2,),
        data_parallel=(2,),
        idle_nodes=False,
        recompute=("none", "selective", "full"),
        embedding_only_stages=True,
    )
    whole = certified_cases.instance(search=search)
    one = whole.but(workload=workload(chain, 4, 10**6, tied=False))
    document = build_document(solve(one), SolveOptions())
    stages = [one.layers for one in document.replicas[0].stages]
    k = next(k for k, own in enumerate(stages) if own in [(0, 1), (2, 3)])
    changes = {f"replicas.0.stages.{k}.recomputed.way": "selective"}
    assert verify_document(document).complete
    assert verify_document(forged(document, changes), Effort(prove="nothing")).problems != ()
