"""Placement costs, counted flow by flow."""

import random
from collections.abc import Iterable, Sequence

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from tests.brute_force import all_orders, place
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import check_costs
from tests.random_shapes import random_tables, wide_zones
from tests.seeds import few_and_many, one_each


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
@pytest.mark.parametrize("seeds", few_and_many(range(160), 3))
def test_placer_equals_the_count_from_slots(seeds: Sequence[int], zones: bool) -> None:
    """Every cost of every order is what the slots give, with zones or without."""
    for seed in seeds:
        tables = random_tables(seed, zones)
        assert_counted(tables, all_orders(tables))


@pytest.mark.parametrize("seed", one_each(range(40), 5))
def test_placer_equals_the_count_from_slots_over_many_zones(seed: int) -> None:
    """So it is with six nodes in up to four zones, where rings of different zones share links."""
    rng = random.Random(seed)
    nodes = list(range(6))
    assert_counted(wide_zones(seed), [tuple(rng.sample(nodes, 6)) for _ in range(20)])


def test_flows_of_one_boundary_share_the_link() -> None:
    """Two replicas that cross together take twice the time of one."""
    # 2 flows x 1 MB / 1 GB/s = 2 ms, and 10 us of latency.
    assert Placer(equal_nodes(2, 2, 1, 2, 2)).costs([0, 0]).send_ns.tolist() == [[[2_010_000] * 2]]


def test_transfer_inside_a_node() -> None:
    """A stage boundary inside a node uses its fast link, the next one the network."""
    # Slots 0, 1 | 2, 3, dp = 1: inside, across, inside. 1 MB / 10 GB/s = 100 us, + 1 us.
    costs = Placer(equal_nodes(2, 2, 1, 1, 4)).costs([0, 0])
    assert costs.send_ns.ravel().tolist() == [101_000, 1_010_000, 101_000]


def test_sync_inside_a_node() -> None:
    """A stage inside one node reduces over its fast links alone."""
    # All-reduce of 2 ranks: 2 x 1/2 x 10 MB / 10 GB/s = 1 ms a layer; 2 steps of 1 us.
    costs = Placer(equal_nodes(2, 2, 1, 2, 2)).costs([0, 0])
    assert costs.sync_ns.tolist() == [[1_000_000] * 4] * 2
    assert costs.sync_latency_ns.tolist() == [2_000, 2_000]


def test_sync_between_nodes() -> None:
    """Over two nodes efficiency counts, and every tp rank's ring shares the link."""
    # tp = 2, dp = 2, one slot a node: 2 rings x 2 x 1/2 x 10 MB / (1 GB/s x 0.5) = 40 ms a layer;
    # 2 steps of 10 us.
    costs = Placer(equal_nodes(2, 2, 2, 2, 1)).costs([0, 0])
    assert costs.sync_ns.tolist() == [[40_000_000] * 4]
    assert costs.sync_latency_ns.tolist() == [20_000]


def test_rings_of_two_stages_share_a_border() -> None:
    """A node on the border of two stages carries the rings of both."""
    # 3 slots a node, dp = 2, pp = 3: slots 01 | 23 | 45; nodes 012 | 345: stage 1 spans both, and
    # is the only one: 1 ring x 10 MB / (1 GB/s x 0.5) = 20 ms. Stages 0 and 2 stay inside: 1 ms.
    costs = Placer(equal_nodes(2, 3, 1, 2, 3)).costs([0, 0])
    assert costs.sync_ns[:, 0].tolist() == [1_000_000, 20_000_000, 1_000_000]


def test_distributed_optimizer_reduces_and_gathers() -> None:
    """ZeRO 1 moves half an all-reduce before, and the parameters after the optimizer."""
    # 2 ranks inside a node: 1/2 x 10 MB / 10 GB/s = 500 us; gather 1/2 x 5 MB = 250 us; 1 us each.
    costs = Placer(equal_nodes(2, 2, 1, 2, 2, zero=1)).costs([0, 0])
    assert (costs.sync_ns[0, 0], costs.gather_ns[0, 0]) == (500_000, 250_000)
    assert (costs.sync_latency_ns[0], costs.gather_latency_ns[0]) == (1_000, 1_000)


def test_tied_embeddings_share_the_link() -> None:
    """Each replica's first and last stage reduce the tied matrix over the nodes' links."""
    # 500 rows padded to 512 x 2000 x 4 B = 4.096 MB, two crossing lanes at 1 GB/s; 2 steps.
    costs = Placer(equal_nodes(2, 2, 1, 2, 2, tied=True)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000


def test_bug_gpus_that_share_sequences_reduce_the_tied_matrix_each() -> None:
    """Two context GPUs of one replica share the nodes' links as two replicas do."""
    costs = Placer(equal_nodes(2, 2, 1, 1, 2, tied=True, cp=2)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000


def test_one_replica_needs_no_sync() -> None:
    """Without data parallelism nothing is reduced."""
    costs = Placer(equal_nodes(2, 2, 1, 1, 4)).costs([0, 0])
    assert not costs.sync_ns.any()
    assert not costs.sync_latency_ns.any()


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("dp", [2, 3, 4])
def test_nodes_far_from_both_ends_are_counted_like_near_ones(dp: int, size: int) -> None:
    """Six nodes on up to 24 stages: what is worked out once for alike nodes is what slots give."""
    if 6 * size % dp == 0:
        assert_counted(equal_nodes(6, size, 1, dp, 6 * size // dp, tied=True, zero=1), [(0,) * 6])


@pytest.mark.parametrize("seed", [4, 5, 34, 41])
def test_pages_suffice(seed: int) -> None:
    """Random plans that use this module cost what docs/cost.md says."""
    check_costs(seed)
