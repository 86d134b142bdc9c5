"""Placement costs, counted flow by flow."""

from dataclasses import replace

import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Cluster, Instance, Link, NodeGroup, SearchSpace
from formulations.plan import Shape
from tests.brute_force import all_orders, place
from tests.random_shapes import random_tables
from tests.small_instances import gpu, layer, workload

INSIDE = Link(bandwidth_bytes_per_s=1e10, latency_s=1e-6)
OUTSIDE = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-5)


def two_nodes(
    gpus: int, tp: int, dp: int, pp: int, zero: int = 0, tied: bool = False
) -> CostTables:
    """Two equal nodes; messages of 1 MB; 10 MB of gradients per layer; efficiency 0.5 for two."""
    one = gpu("one", 100, 80)
    group = NodeGroup(
        name="one",
        gpu=one,
        gpus_per_node=gpus,
        nodes=2,
        price_usd_per_hour=1,
        intra_node=INSIDE,
        inter_node=OUTSIDE,
    )
    chain = [layer(kind, 1, 0, 0) for kind in ("embedding", "block", "block", "head")]
    instance = Instance(
        name="two",
        source="test",
        workload=workload(chain, 4, 10**6, tied),
        cluster=Cluster(groups=(group,), network_efficiency=((1, 1.0), (2, 0.5))),
        search=SearchSpace(embedding_only_stages=True),
    )
    shape = Shape(
        tp=tp,
        dp=dp,
        pp=pp,
        micro_batch=1,
        schedule="1f1b",
        recompute="none",
        zero=zero,
        nodes_used=(2,),
    )
    tables = build_tables(instance, shape)
    size = tables.gradient_bytes * 0 + 10**7
    return replace(tables, gradient_bytes=size, gather_bytes=size // 2 * zero)


@pytest.mark.parametrize("seed", range(160))
def test_placer_equals_the_count_from_slots(seed: int) -> None:
    """Every cost of every order is what counting flows and rings slot by slot gives."""
    tables = random_tables(seed)
    placer = Placer(tables)
    for order in all_orders(tables):
        costs, counted = placer.costs(order), place(tables, order)
        assert costs.group_of_slot.tolist() == counted.groups
        assert costs.send_ns.ravel().tolist() == counted.send
        assert costs.sync_ns.tolist() == counted.sync
        assert costs.sync_latency_ns.tolist() == counted.sync_start
        assert costs.gather_ns.tolist() == counted.gather
        assert costs.gather_latency_ns.tolist() == counted.gather_start
        assert costs.embedding_ns == counted.embedding


def test_flows_of_one_boundary_share_the_link() -> None:
    """Two replicas that cross together take twice the time of one."""
    # 2 flows x 1 MB / 1 GB/s = 2 ms, and 10 us of latency.
    assert Placer(two_nodes(2, 1, 2, 2)).costs([0, 0]).send_ns.tolist() == [[2_010_000] * 2]


def test_transfer_inside_a_node() -> None:
    """A stage boundary inside a node uses its fast link, the next one the network."""
    # Slots 0, 1 | 2, 3, dp = 1: inside, across, inside. 1 MB / 10 GB/s = 100 us, + 1 us.
    costs = Placer(two_nodes(2, 1, 1, 4)).costs([0, 0])
    assert costs.send_ns.ravel().tolist() == [101_000, 1_010_000, 101_000]


def test_sync_inside_a_node() -> None:
    """A stage inside one node reduces over its fast links alone."""
    # All-reduce of 2 ranks: 2 x 1/2 x 10 MB / 10 GB/s = 1 ms a layer; 2 steps of 1 us.
    costs = Placer(two_nodes(2, 1, 2, 2)).costs([0, 0])
    assert costs.sync_ns.tolist() == [[1_000_000] * 4] * 2
    assert costs.sync_latency_ns.tolist() == [2_000, 2_000]


def test_sync_between_nodes() -> None:
    """Over two nodes efficiency counts, and every tp rank's ring shares the link."""
    # tp = 2, dp = 2, one slot a node: 2 rings x 2 x 1/2 x 10 MB / (1 GB/s x 0.5) = 40 ms a layer;
    # 2 steps of 10 us.
    costs = Placer(two_nodes(2, 2, 2, 1)).costs([0, 0])
    assert costs.sync_ns.tolist() == [[40_000_000] * 4]
    assert costs.sync_latency_ns.tolist() == [20_000]


def test_rings_of_two_stages_share_a_border() -> None:
    """A node on the border of two stages carries the rings of both."""
    # 3 slots a node, dp = 2, pp = 3: slots 01 | 23 | 45; nodes 012 | 345: stage 1 spans both, and
    # is the only one: 1 ring x 10 MB / (1 GB/s x 0.5) = 20 ms. Stages 0 and 2 stay inside: 1 ms.
    costs = Placer(two_nodes(3, 1, 2, 3)).costs([0, 0])
    assert costs.sync_ns[:, 0].tolist() == [1_000_000, 20_000_000, 1_000_000]


def test_distributed_optimizer_reduces_and_gathers() -> None:
    """ZeRO 1 moves half an all-reduce before, and the parameters after the optimizer."""
    # 2 ranks inside a node: 1/2 x 10 MB / 10 GB/s = 500 us; gather 1/2 x 5 MB = 250 us; 1 us each.
    costs = Placer(two_nodes(2, 1, 2, 2, zero=1)).costs([0, 0])
    assert (costs.sync_ns[0, 0], costs.gather_ns[0, 0]) == (500_000, 250_000)
    assert (costs.sync_latency_ns[0], costs.gather_latency_ns[0]) == (1_000, 1_000)


def test_tied_embeddings_share_the_link() -> None:
    """Each replica's first and last stage reduce the tied matrix over the nodes' links."""
    # 500 rows padded to 512 x 2000 x 4 B = 4.096 MB, two crossing lanes at 1 GB/s; 2 steps.
    costs = Placer(two_nodes(2, 1, 2, 2, tied=True)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000


def test_one_replica_needs_no_sync() -> None:
    """Without data parallelism nothing is reduced."""
    costs = Placer(two_nodes(2, 1, 1, 4)).costs([0, 0])
    assert not costs.sync_ns.any()
    assert not costs.sync_latency_ns.any()
