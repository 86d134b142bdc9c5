"""The verifier's own exhaustive search, against brute force."""

from collections.abc import Sequence

import pytest

from formulations.costs.tables import CostTables
from solver.simulate import step_time_ns
from solver.verify import exhaust as module
from solver.verify import orders
from solver.verify.bounds import Prover
from solver.verify.clock import Clock, TimeUpError
from solver.verify.exhaust import exhaust
from solver.verify.recount import Recount
from solver.verify.simulated import Outcome
from solver.verify.space import PlanSpace
from tests.chain_instances import FAST, SLOW, measured_chain
from tests.random_shapes import random_optimum_ns, random_tables
from tests.seeds import few_and_many, one_each

ANY_TIME_NS = 1 << 56


def opinion(tables: CostTables, below_ns: int) -> Outcome:
    """What is found out without a limit on time."""
    prover = Prover(PlanSpace(tables.instance))
    found = exhaust(prover, tables.shape, below_ns, Clock())
    assert found is not None
    return found


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("few", [1, module.FEW])
@pytest.mark.parametrize("seeds", few_and_many(range(80), 3))
def test_claims_up_to_the_optimum_are_proved_and_no_others(
    seeds: Sequence[int], zones: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even and uneven, blocking, tied, zones: no plan is faster than the best, and it is found.

    Whether plans are tried in bulk, or halves are halved until one plan is left.
    """
    monkeypatch.setattr(module, "FEW", few)
    for seed in seeds:
        tables, best = random_tables(seed, zones), random_optimum_ns(seed, zones)
        if best is None:
            assert opinion(tables, ANY_TIME_NS).plan is None
            continue
        assert opinion(tables, best).plan is None
        above = opinion(tables, best + 1)
        assert above.step_time_ns == best
        assert above.plan is not None
        assert step_time_ns(Recount(tables.instance, above.plan).costs()) == best


@pytest.mark.parametrize("seed", one_each(range(60), 3))
def test_what_refutes_a_claim_is_a_plan_below_it(seed: int) -> None:
    """A claim far too high is refuted by some plan that fits, with its true step time."""
    tables, best = random_tables(seed), random_optimum_ns(seed)
    if best is None:
        pytest.skip("nothing fits")
    found = opinion(tables, 3 * best)
    assert found.plan is not None
    costs = Recount(tables.instance, found.plan).costs()
    assert (costs.memory_bytes <= costs.limit_bytes).all()
    assert found.step_time_ns == step_time_ns(costs) < 3 * best
    total = sum(replica.micro_batches for replica in found.plan.replicas)
    assert total == tables.num_micro_batches


def test_a_search_that_is_stopped_proves_nothing() -> None:
    """Not even what is plain."""
    tables = measured_chain(FAST)
    prover = Prover(PlanSpace(tables.instance))
    with pytest.raises(TimeUpError):
        exhaust(prover, tables.shape, 1, Clock(0.0))


def test_too_many_orders_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph of all orders there is no opinion."""
    monkeypatch.setattr(orders, "MOST_STEPS", 0)
    tables = measured_chain(SLOW)
    prover = Prover(PlanSpace(tables.instance))
    assert exhaust(prover, tables.shape, 1, Clock()) is None
