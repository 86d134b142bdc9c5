"""What proofs share: that no split fits the memory, and that no stage lies in two zones."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance, ZoneLink
from formulations.instance.load import load_instance
from formulations.space import PlanSpace, configs
from formulations.space.configurations import recompute_ways
from formulations.units import GIB
from solver.interrupt import Deadline
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, searched
from tests import brute_force
from tests.best_plans import all_tables, prover_of
from tests.certified_cases import instance
from tests.chain_instances import equal_nodes
from tests.conftest import present
from tests.random_configs import cramped_instance, extreme_optimum_ns, extreme_tables
from tests.seeds import each_of, few_and_many, one_each
from tests.small_instances import plain_config, random_instance


def splits_that_fit(tables: CostTables) -> list[tuple[int, ...]]:
    """Splits in which each stage fits the largest GPU used, with the fewest in flight."""
    config = tables.config
    even = tables.instance.search.micro_batches == "even"
    m = tables.num_micro_batches // config.dp if even else 1
    most = max(int(tables.capacity_bytes[j]) for j, n in enumerate(config.nodes_used) if n)
    return [
        split
        for split in brute_force.all_splits(tables)
        if all(
            brute_force.least_bytes(tables, [(split[k], split[k + 1])], k, m) <= most
            for k in range(config.pp)
        )
    ]


@pytest.mark.parametrize("seeds", few_and_many(range(60), 15))
def test_lack_of_memory_is_what_trying_every_split_finds(seeds: Sequence[int]) -> None:
    """The chain of stages finds a split exactly if there is one; some configurations have none."""
    answers = set()
    search = {"schedule": ("1f1b", "gpipe")}
    for tables in all_tables(random_instance(seed).but(search=search) for seed in seeds):
        lacks = prover_of(tables).lacks_memory(tables.config)
        assert lacks == (not splits_that_fit(tables))
        answers.add(lacks)
    assert answers == {False, True}


def large_head(memory_gib: float = 8) -> Instance:
    made = instance(memory_gib=memory_gib)
    *others, head = made.workload.layer_runs
    runs = (*others, head.but(layer={"sharded_parameters": 10**8}))
    return made.but(workload={"layer_runs": runs})


@pytest.mark.parametrize("dp", [1, 2])
def test_bug_whole_gradients_of_the_head_take_memory(dp: int) -> None:
    """One stage of all layers fits a GPU of just its size, and none that is a byte smaller.

    ZeRO 2 holds those of one layer whole; the verifier looked at layers up to the last block.
    """
    config = plain_config((1, 0), dp=dp, zero=2 * (dp - 1))
    need = brute_force.least_bytes(build_tables(large_head(), config), [(0, 4)], 0, 4 // dp)
    for spare in (0, -1):
        tight = Prover(PlanSpace(large_head((need + spare) / GIB)))
        assert tight.lacks_memory(config) is (spare < 0)


def test_what_has_no_room_is_recomputed() -> None:
    """So some layers take longer backward than they do by themselves."""
    cramped = cramped_instance(9)[0]
    prover, config = Prover(PlanSpace(cramped)), next(iter(configs(cramped)))
    assert (prover.backward_ns(config, 0, 9) > prover.stage_times(config)[1]).any()


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
    tables = equal_nodes(nodes=4, gpus=1, dp=4, pp=1, zones="xyzz", own={"xz": faster})
    assert prover_of(tables).spanning_ns(tables.config) == 80_000 + 2_000_000 + 56


@each_of(range(240), 20)
def test_a_stage_in_two_zones_takes_as_long_as_said(seed: int) -> None:
    """Every order with one has only splits of at least `spanning_ns`."""
    tables = extreme_tables(seed)
    if tables.instance.cluster.zone_link is None:
        return
    orders = [order for order in brute_force.all_orders(tables) if spans(tables, order)]
    best = brute_force.optimum_ns(tables, orders=orders)
    if best is not None:
        assert prover_of(tables).spanning_ns(tables.config) <= best, seed
        assert not prover_of(tables).keeps_stages_apart(tables.config, best + 1), seed


@each_of(range(240), 40)
def test_claims_over_extreme_links_are_proved_up_to_the_optimum(seed: int) -> None:
    """1 ns above it a claim is refused, by a plan with that step."""
    tables, best = extreme_tables(seed), extreme_optimum_ns(seed)
    if best is None:
        return
    true, forged = (Claim(0, tables.config, best + more) for more in (0, 1))
    assert present(searched(prover_of(tables), true, Deadline(None))).argument is not None, seed
    found = present(searched(prover_of(tables), forged, Deadline(None)))
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
    assert prover.keeps_stages_apart(config, best_ns)
    assert present(searched(prover, Claim(0, config, best_ns), Deadline(None))).argument
