"""Placement costs, counted flow by flow."""

import random
from collections.abc import Iterable, Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from tests.brute_force import all_orders, place
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.random_configs import random_tables, wide_zones
from tests.seeds import few_and_many, one_each

test_pages_suffice = pages_suffice(4, 5, 34, 41)


def assert_counted(tables: CostTables, orders: Iterable[tuple[int, ...]]) -> None:
    """Costs of these orders are what counting flows and rings slot by slot gives."""
    placer = Placer(tables)
    for order in orders:
        costs, counted = placer.costs(order), place(tables, order)
        assert costs.group_of_slot.tolist() == counted.groups
        by_kind = zip(tables.tensors, costs.send_ns, strict=True)
        sends = {n: times.ravel().tolist() for n, times in by_kind}
        assert sends == {n: [times[n] for times in counted.send] for n in tables.tensors}
        assert costs.sync_ns.tolist() == counted.sync
        assert costs.sync_latency_ns.tolist() == counted.sync_start
        assert costs.gather_ns.tolist() == counted.gather
        assert costs.gather_latency_ns.tolist() == counted.gather_start
        assert costs.embedding_ns == counted.embedding


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(160), 20))
def test_placer_equals_the_count_from_slots(seeds: Sequence[int], zones: bool) -> None:
    for seed in seeds:
        tables = random_tables(seed, zones)
        assert_counted(tables, all_orders(tables))


@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_placer_equals_the_count_from_slots_over_many_zones(seed: int) -> None:
    rng = random.Random(seed)
    nodes = list(range(6))
    assert_counted(wide_zones(seed), [tuple(rng.sample(nodes, 6)) for _ in range(20)])


def test_bug_gpus_that_share_sequences_reduce_the_tied_matrix_each() -> None:
    """Two context GPUs of one replica share the nodes' links as two replicas do."""
    costs = Placer(equal_nodes(2, 2, 1, 1, 2, tied=True, cp=2)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000
