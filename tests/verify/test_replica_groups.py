"""The verifier's opinion lane by lane, against brute force."""

from functools import partial
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.load import load_instance
from formulations.space import PlanSpace, configs
from solver.interrupt import Deadline, TimeUp
from solver.simulate import step_time_ns
from solver.verify import orders, partition, replica_groups
from solver.verify.bounds import Prover
from solver.verify.exhaust import Outcome
from solver.verify.orders import OrderGraph
from solver.verify.replica_groups import Lanes, exhaust_lanes
from tests import brute_force
from tests.best_plans import prover_of, refuted_share
from tests.conftest import present
from tests.random_configs import random_optimum_ns, random_tables, scheduled, unlike_replicas
from tests.recorded import Cases, recorded
from tests.seeds import each_of
from tests.small_instances import plain_config

ANY_TIME_NS = 1 << 56


def unlike_tables(seed: int, even: bool = False) -> CostTables:
    """Tables of a config of few replicas on nodes of one size; with even shares 12 at most."""
    instance = unlike_replicas(seed)
    if even:
        search = instance.search.but(micro_batches="even")
        instance = instance.but(search=search, workload={"global_batch": 12})
    (config, *_) = (one for one in configs(instance) if one.zero == seed % 2)
    return build_tables(instance, config)


def question(tables: CostTables, below_ns: int) -> Lanes:
    return Lanes(prover_of(tables), tables.config, below_ns)


def refuted(lanes: Lanes) -> bool:
    return lanes.everything() is None


def bounded(tables: CostTables, below_ns: int) -> bool:
    return refuted(question(tables, below_ns))


def opinion(tables: CostTables, below_ns: int) -> Outcome | None:
    """What is found out without a limit on time."""
    lanes = question(tables, below_ns)
    left = lanes.everything()
    return Outcome(tried=False) if left is None else exhaust_lanes(lanes, left)


@pytest.mark.parametrize("even", [False, True])
@each_of(range(160), 54)
def test_claims_up_to_the_optimum_are_proved_and_no_others(seed: int, even: bool) -> None:
    """Against all orders, splits and shares; by a plan that fits, with its true step time."""
    tables = unlike_tables(seed, even)
    best = brute_force.optimum_ns(tables)
    proved = present(opinion(tables, ANY_TIME_NS if best is None else best))
    assert proved.plan is None, seed
    if best is None:
        return
    assert not refuted(question(tables, best + 1)), seed
    for claim in (best + 1, best * 5 // 4):
        found = present(opinion(tables, claim))
        assert found.plan is not None, seed
        costs = plan_costs(tables.instance, found.plan)
        assert (costs.memory_bytes <= costs.limit_bytes).all()
        assert found.step_time_ns == step_time_ns(costs) < claim


@each_of(range(160), 40)
def test_unlike_shares_of_zb_h1_lane_by_lane(seed: int) -> None:
    """Fewer micro-batches may take longer: no optimum is refuted, none 0.1 % above it proved."""
    instance = scheduled(unlike_replicas(seed), "zb-h1", seed)
    (config, *_) = (one for one in configs(instance) if one.zero == seed % 2)
    tables = build_tables(instance, config)
    best = brute_force.optimum_ns(tables)
    if best is None:
        return
    proved = opinion(tables, best)
    assert proved is None or proved.plan is None, seed
    found = opinion(tables, best * 1001 // 1000 + 1)
    assert found is None or found.plan is not None, seed
    assert not refuted(question(tables, best + 1)), seed


@pytest.mark.parametrize("zones", [False, True])
@each_of(range(120), 60)
@recorded("verify_replica_groups")
def test_bounds_hold_for_any_config(seed: int, zones: bool) -> Cases:
    tables, best = random_tables(seed, zones), random_optimum_ns(seed, zones)
    if best is not None:
        assert not refuted(question(tables, best + 1)), seed
        share = refuted_share(partial(bounded, tables), best)
        yield f"seed {seed}, zones {zones}", share


def test_more_orders_than_could_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty nodes in 86 million orders: a claim above the best plan known is not called proved.

    That plan has six replicas of five stages; five of six, without ZeRO, are slower.
    """
    monkeypatch.setattr(orders, "MOST_STEPS", 40_000)
    instance = load_instance(Path("instances/oobleck_mixed.yaml"))
    prover = Prover(PlanSpace(instance))
    wide = plain_config((18, 12), dp=6, pp=5, zero=1)
    deep = wide.but(dp=5, pp=6, zero=0)
    assert OrderGraph(prover.tables(deep)).steps is None
    assert refuted(Lanes(prover, deep, 12_000_000_000))
    assert not refuted(Lanes(prover, wide, 15_767_634_935))
    assert refuted(Lanes(prover, wide, 12_000_000_000))


def test_no_opinion_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of time, and of ways of a lane, whether to choose its nodes or through a split."""
    tables = unlike_tables(4)
    best = present(brute_force.optimum_ns(tables))
    assert refuted(question(tables, best // 2))  # by bounds alone
    late = Lanes(prover_of(tables), tables.config, best, Deadline(0.0))
    with pytest.raises(TimeUp):
        late.everything()
    with monkeypatch.context() as limited:
        limited.setattr(replica_groups, "MOST_PATHS", 0)
        assert opinion(tables, best + 1) is None
    monkeypatch.setattr(partition, "MOST_DEALT", 0)
    assert opinion(tables, best + 1) is None
