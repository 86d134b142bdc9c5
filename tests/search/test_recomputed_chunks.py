"""Interleaved plans whose devices recompute as little as fits: engines, models, verifier."""

from functools import cache

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Recomputed, Shape
from formulations.space import shapes
from solver.document import PlanDocument
from solver.files import sealed
from solver.graph import devices
from solver.options import SolveOptions
from solver.search.driver import solve
from solver.verify import Effort, verify_document
from tests.best_plans import check_claims, optima_ns
from tests.cramped import check_optimum, one_degree, recomputing
from tests.seeds import one_each


def interleaved(seed: int, **fields: object) -> Instance:
    """With several chunks per device."""
    return one_degree(seed, "interleaved", **fields)


@cache
def known(seed: int) -> dict[Shape, int]:
    """Least step time of every shape that has a plan, by trying all and all choices of ways."""
    return optima_ns(interleaved(seed))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("seed", one_each(range(120), 12))
def test_search_finds_what_brute_force_finds(
    seed: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum over all shapes, over all node orders at once or one by one; verify proves it."""
    if not at_once:
        monkeypatch.setattr(devices, "MOST_EDGES", 0)
    check_optimum(interleaved(seed), min(known(seed).values(), default=None))


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("seed", one_each(range(60), 13))
def test_models_find_what_the_search_finds(seed: int, method: str) -> None:
    """CP-SAT and MILP prove the optimum of the exact search."""
    exact = solve(interleaved(seed))
    found = solve(interleaved(seed), SolveOptions(method=method))  # type: ignore[arg-type]
    assert (found.status, found.step_time_ns) == (exact.status, exact.step_time_ns)


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_claims_are_proved_to_the_nanosecond(seed: int) -> None:
    """The verifier closes every shape at its optimum, and refutes a claim of one ns more."""
    instance = interleaved(seed)
    for shape in shapes(instance):
        check_claims(build_tables(instance, shape), known(seed).get(shape))


@pytest.mark.parametrize("seed", one_each(range(120), 20))
def test_own_ways_are_never_slower(seed: int) -> None:
    """Than one way for all devices."""
    own, alike = solve(interleaved(seed)), solve(interleaved(seed, recompute_per="plan"))
    if alike.step_time_ns is not None:
        assert own.step_time_ns is not None
        assert own.step_time_ns <= alike.step_time_ns


def test_own_ways_are_faster_somewhere() -> None:
    """One device recomputes while another does not, which no single way allows."""
    gains = 0
    for seed in (6, 13, 14, 16, 17, 22, 26):
        own, alike = solve(interleaved(seed)), solve(interleaved(seed, recompute_per="plan"))
        gains += own.step_time_ns != alike.step_time_ns
    assert gains


@cache
def interleaved_and_recomputing() -> PlanDocument:
    """An optimum of which some devices recompute."""
    return recomputing(map(interleaved, range(60)))


def changed(document: PlanDocument, chunks: int, way: Recompute, more: int) -> PlanDocument:
    """Another recomputation in the first chunks of a device that recomputes."""
    replica, pp = document.replicas[0], document.shape.pp if document.shape else 1
    k = next(k for k, stage in enumerate(replica.stages) if stage.recomputed.blocks) % pp
    stages = list(replica.stages)
    for s in range(k, len(stages), pp)[:chunks]:
        blocks = max(0, stages[s].recomputed.blocks + more)
        forged = Recomputed.model_construct(way=way, blocks=0 if way == "none" else blocks)
        stages[s] = stages[s].but(recomputed=forged)
    replicas = (replica.but(stages=tuple(stages)), *document.replicas[1:])
    return sealed(document.but(replicas=replicas))


@pytest.mark.parametrize("chunks", [1, 9])
@pytest.mark.parametrize(("way", "more"), [("none", 0), ("selective", 0), ("full", -1)])
def test_chunks_that_recompute_otherwise_are_refused(
    chunks: int, way: Recompute, more: int
) -> None:
    """One chunk, or all of a device, in another way or fewer blocks than the figures are of."""
    document = interleaved_and_recomputing()
    other = changed(document, chunks, way, more)
    if other.replicas == document.replicas:
        pytest.skip("the way that is stated")
    assert verify_document(document, Effort()).problems == ()
    assert verify_document(other, Effort(prove="nothing")).problems != ()
