"""What paths strike out over all node orders: never the best plan."""

from functools import partial

import pytest

from formulations.costs.tables import CostTables
from formulations.instance import Profile, ProfileEntry
from solver.bounds.largest_share import config_bound_ns
from solver.graph.problem import Intervals
from solver.verify import orders
from solver.verify.stages import ChunkStages
from tests.best_plans import question_of, refuted_share, refutes
from tests.chain_instances import FAST, SLOW, chain_instance, chain_tables
from tests.random_configs import random_optimum_ns, random_tables
from tests.recorded import Cases, recorded
from tests.seeds import each_of


def measured_chain(second: tuple[str, float, float]) -> CostTables:
    """Embedding, two blocks and head on a slow GPU and another, with measured times."""
    entries = tuple(
        ProfileEntry(kind=kind, gpu=name, tp=1, micro_batch=1, forward_s=s, backward_s=2 * s)
        for kind, slow in (("embedding", 1e-3), ("block", 3e-3), ("head", 2e-3))
        for name, s in (("slow", slow), ("fast", slow / 2))
    )
    profile = Profile(source="test", includes_tensor_parallel_traffic=True, entries=entries)
    return chain_tables(chain_instance([1, 1], [SLOW, second]).but(profile=profile))


@pytest.mark.parametrize(("second", "bound_ns"), [(SLOW, 72_000_000), (FAST, 51_500_000)])
def test_bottleneck_by_hand(second: tuple[str, float, float], bound_ns: int) -> None:
    """A micro-batch takes 4 + 8 ms on the first stage and 5 + 10 on the second, or half if fast.

    12 + 4 * 15 ms; with the fast one 4 * 12 ms on the first stage, which waits 7.5 ms for the first
    backward and has 4 ms of forwards meanwhile. Then the optimizer of 10,000,007 parameters *
    (4 + 2 * 12 + 2) bytes at 1e12 B/s, twice rounded up to 300,001 ns, and 1 us each way.
    """
    question, best_ns = question_of(measured_chain(second)), bound_ns + 602_002
    assert refutes(question, best_ns)
    assert not refutes(question, best_ns + 1)


@pytest.mark.parametrize("zones", [False, True])
@each_of(range(120), 20)
@recorded("verify_refutation")
def test_no_plan_is_refuted_with_uneven_shares_or_zones(seed: int, zones: bool) -> Cases:
    """The same for configurations of two types and node sizes, uneven, blocking, or over zones."""
    tables, best = random_tables(seed, zones), random_optimum_ns(seed, zones)
    if best is not None:
        question = question_of(tables)
        assert not refutes(question, best + 1), seed
        yield f"seed {seed}, zones {zones}", refuted_share(partial(refutes, question), best)


@recorded("verify_refutation")
def test_claims_about_several_chunks_are_the_recorded_ones() -> Cases:
    """Asked anew for every claim, as a larger one leaves more runs of layers; none is too high."""
    for seed in range(9, 49, 5):
        tables = random_tables(seed, schedule="interleaved")
        best = random_optimum_ns(seed, schedule="interleaved")

        def refuted(below_ns: int) -> bool:
            return refutes(question_of(tables, below_ns), below_ns)  # noqa: B023

        if best is not None:
            assert not refuted(best + 1)
            stages = question_of(tables, best).stages
            assert isinstance(stages, ChunkStages)
            yield f"seed {seed}, chunks", [refuted_share(refuted, best), stages.limit]
    assert not isinstance(question_of(random_tables(9), 1).stages, ChunkStages)


@each_of(range(160), 32)
def test_what_the_search_bounds_is_refuted(seed: int) -> None:
    """The verifier's argument is at least as strong as the configuration bound of the search.

    But where a stage recomputes more with more micro-batches: its paths count what one asks for.
    """
    tables = random_tables(seed)
    question = question_of(tables)
    if question.stages.even or len(tables.config.recompute) == 1:
        assert refutes(question, config_bound_ns(Intervals(tables), 1 << 50)), seed


def test_too_many_orders_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph there is no question."""
    tables = chain_tables(chain_instance([3, 3], [SLOW, FAST]))
    assert refutes(question_of(tables), 1)
    monkeypatch.setattr(orders, "MOST_STEPS", 1)
    assert question_of(tables).stages.graph.steps is None
