"""The verifier's own exhaustive search, against brute force."""

import random
from collections.abc import Sequence

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.space import PlanSpace
from solver.simulate import step_time_ns
from solver.verify import exhaust as module
from solver.verify import orders
from solver.verify.bounds import Clock, Prover, TimeUpError
from solver.verify.exhaust import exhaust
from tests import brute_force
from tests.best_plans import check_claims
from tests.chain_instances import FAST, SLOW, measured_chain
from tests.cramped import cramped_tables, with_cores, with_less_memory
from tests.random_configs import (
    crowded_instance,
    random_config,
    random_optimum_ns,
    random_tables,
    zoned,
)
from tests.seeds import few_and_many, one_each


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("few", [1, module.FEW])
@pytest.mark.parametrize("seeds", few_and_many(range(80), 9))
def test_claims_up_to_the_optimum_are_proved_and_no_others(
    seeds: Sequence[int], zones: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even and uneven, blocking, tied, zones: no plan is faster than the best, and it is found.

    Whether plans are tried in bulk, or halves are halved until one plan is left.
    """
    monkeypatch.setattr(module, "FEW", few)
    for seed in seeds:
        check_claims(random_tables(seed, zones), random_optimum_ns(seed, zones))


@pytest.mark.parametrize("seed", one_each(range(60), 12))
def test_what_refutes_a_claim_is_a_plan_below_it(seed: int) -> None:
    """A claim far too high is refuted by some plan that fits, with its true step time."""
    tables, best = random_tables(seed), random_optimum_ns(seed)
    if best is None:
        pytest.skip("nothing fits")
    found = exhaust(Prover(PlanSpace(tables.instance)), tables.config, 3 * best, Clock())
    assert found is not None
    assert found.plan is not None
    costs = plan_costs(tables.instance, found.plan)
    assert (costs.memory_bytes <= costs.limit_bytes).all()
    assert found.step_time_ns == step_time_ns(costs) < 3 * best
    total = sum(replica.micro_batches for replica in found.plan.replicas)
    assert total == tables.num_micro_batches


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 10))
def test_bug_uneven_shares_of_zb_h1_are_tried(seeds: Sequence[int], zones: bool) -> None:
    """With fewer micro-batches it has another order, and there was no opinion."""
    for seed in seeds:
        check_claims(random_tables(seed, zones, "zb-h1"), random_optimum_ns(seed, zones, "zb-h1"))


def test_bug_fewer_micro_batches_recompute_less() -> None:
    """Zones slow a replica down, so it gets fewer micro-batches, and has room for more of them.

    The plan that refutes a claim above the optimum was priced as if it still recomputed as much,
    and the claim passed for proved.
    """
    instance = zoned(crowded_instance(99), 99)
    search = {"recompute": ("none", "selective", "full"), "schedule": ("1f1b",)}
    fields = {
        "search": instance.search.model_copy(update=search),
        "workload": with_cores(instance.workload),
    }
    instance = instance.model_copy(update=fields)
    config = random_config(instance, 99)
    assert config is not None
    tables = build_tables(with_less_memory(instance, config, random.Random(99)), config)
    check_claims(tables, brute_force.optimum_ns(tables))


def test_a_search_that_is_stopped_proves_nothing() -> None:
    """Not even what is plain."""
    tables = measured_chain(FAST)
    prover = Prover(PlanSpace(tables.instance))
    with pytest.raises(TimeUpError):
        exhaust(prover, tables.config, 1, Clock(0.0))


def test_too_many_orders_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph of all orders there is no opinion."""
    monkeypatch.setattr(orders, "MOST_STEPS", 0)
    tables = measured_chain(SLOW)
    prover = Prover(PlanSpace(tables.instance))
    assert exhaust(prover, tables.config, 1, Clock()) is None


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 12))
def test_claims_where_stages_recompute_in_part(seeds: Sequence[int], schedule: str) -> None:
    """Where memory decides what is recomputed, a claim 1 ns above the optimum is refuted."""
    for seed in seeds:
        tables = cramped_tables(seed, schedule)
        check_claims(tables, brute_force.optimum_ns(tables))
