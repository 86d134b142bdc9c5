"""The verifier's arguments about links between zones: brute force, and a stored cluster."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables
from formulations.instance import ZoneLink
from formulations.instance.load import load_instance
from formulations.space import PlanSpace
from formulations.space.configurations import recompute_ways
from solver.interrupt import Deadline
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, searched
from solver.verify.zone_links import keeps_stages_apart, spanning_ns
from tests import brute_force
from tests.chain_instances import equal_nodes
from tests.random_configs import extreme_optimum_ns, extreme_tables
from tests.seeds import each_of, one_each
from tests.small_instances import plain_config


def prover_of(tables: CostTables) -> Prover:
    return Prover(PlanSpace(tables.instance))


def spans(tables: CostTables, order: Sequence[int]) -> bool:
    """Whether some stage of an order lies in two zones."""
    zone, dp = tables.instance.cluster.zone_of_group, tables.config.dp
    slots = [zone[j] for j in order for _ in range(tables.slots_per_node[j])]
    return any(len(set(slots[i : i + dp])) > 1 for i in range(0, len(slots), dp))


def test_the_least_ring_between_zones() -> None:
    """Four layers of 20 us, then two steps of 1 ms on two nodes; 28 bytes at half of 1 GB/s.

    More nodes take more steps, the other links half as much time again.
    """
    faster = ZoneLink(bandwidth_bytes_per_s=1e9, latency_s=1e-3, source="test")
    tables = equal_nodes(nodes=4, gpus=1, tp=1, dp=4, pp=1, zones="xyzz", own={"xz": faster})
    assert spanning_ns(prover_of(tables), tables.config) == 80_000 + 2_000_000 + 56


@each_of(range(240), 20)
def test_a_stage_in_two_zones_takes_as_long_as_said(seed: int) -> None:
    """Every order with one has only splits of at least `spanning_ns`."""
    tables = extreme_tables(seed)
    if tables.instance.cluster.zone_link is None:
        return
    orders = [order for order in brute_force.all_orders(tables) if spans(tables, order)]
    best = brute_force.optimum_ns(tables, orders=orders)
    if best is not None:
        assert spanning_ns(prover_of(tables), tables.config) <= best, seed
        assert not keeps_stages_apart(prover_of(tables), tables.config, best + 1), seed


@each_of(range(240), 40)
def test_claims_over_extreme_links_are_proved_up_to_the_optimum(seed: int) -> None:
    """1 ns above it a claim is refused, by a plan with that step."""
    tables, best = extreme_tables(seed), extreme_optimum_ns(seed)
    if best is None:
        return
    true, forged = (Claim(0, tables.config, best + more) for more in (0, 1))
    assert searched(prover_of(tables), true, Deadline(None)).argument is not None, seed
    found = searched(prover_of(tables), forged, Deadline(None))
    assert found.plan is not None, seed
    assert step_time_ns(plan_costs(tables.instance, found.plan)) == best, seed


@pytest.mark.parametrize("dp", one_each([4, 8, 16, 32], 4))
def test_zones_that_stages_do_not_span(dp: int) -> None:
    """Sync over 1 Gbit/s takes longer than the best step known; 32 replicas would have to."""
    hard = Path("bench/hard")
    prover = Prover(PlanSpace(load_instance(hard / "zones_64_gpus.yaml")))
    best_ns = int(json.loads((hard / "best_known.json").read_text())["zones_64_gpus"]["bound_ns"])
    [again] = recompute_ways(prover.instance, 0)
    config = plain_config((2, 24, 3), dp=dp, pp=64 // dp, micro_batch=2, recompute=again, zero=1)
    assert keeps_stages_apart(prover, config, best_ns)
    assert searched(prover, Claim(0, config, best_ns), Deadline(None)).argument is not None
