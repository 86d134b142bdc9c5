"""Placement costs: those of the pages, and figures of drawn node orders."""

import random
from pathlib import Path

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import build_tables
from formulations.instance.load import load_instance
from formulations.plan import Configuration, uniform_degrees
from tests.brute_force import all_orders
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.random_configs import random_tables, wide_zones
from tests.recorded import Cases, recorded

test_pages_suffice = pages_suffice(4, 5, 34, 41)


@recorded("placement")
def test_costs_of_drawn_orders_are_the_recorded_ones() -> Cases:
    cases = {
        f"{seed} {zones}": random_tables(seed, zones)
        for seed in range(12)
        for zones in (False, True)
    }
    cases |= {f"{seed} wide": wide_zones(seed) for seed in range(4)}
    for name, tables in cases.items():
        orders = all_orders(tables)
        costs = Placer(tables).costs(random.Random(name).choice(orders))
        yield (
            name,
            [
                costs.group_of_slot @ np.arange(tables.config.slots),
                costs.send_ns.sum(),
                costs.send_ns.max(initial=0),
                *(times.sum(axis=-1).tolist() for times in (costs.sync_ns, costs.gather_ns)),
                *(times.tolist() for times in (costs.sync_latency_ns, costs.gather_latency_ns)),
                costs.embedding_ns,
            ],
        )


def test_bug_gpus_that_share_sequences_reduce_the_tied_matrix_each() -> None:
    """Two context GPUs of one replica share the nodes' links as two replicas do."""
    costs = Placer(equal_nodes(2, 2, 1, 1, 2, tied=True, cp=2)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000


@pytest.mark.parametrize(
    ("name", "tp", "dp", "pp", "rings"),
    [
        ("homo_large_gpt2xl", 2, 2, 8, 2),
        ("homo_large_gpt2xl", 4, 2, 4, 4),
        ("homo_small", 2, 2, 4, 2),
        ("homo_small", 2, 4, 2, 2),
    ],
)
def test_rings_share_links_as_fasop_counts_them(
    name: str, tp: int, dp: int, pp: int, rings: int
) -> None:
    """GPT-2 and BERT on nodes of 4 A10 (HPDC 2024, section 3.3): r rings on the slowest link."""
    instance = load_instance(Path("instances") / f"{name}.yaml")
    group = instance.cluster.groups[0]
    config = Configuration(
        degrees=uniform_degrees(instance, tp),
        dp=dp,
        pp=pp,
        micro_batch=1,
        schedule="1f1b",
        recompute=("none",),
        zero=0,
        nodes_used=(group.nodes,),
    )
    tables = build_tables(instance, config)
    costs = Placer(tables).costs([0] * group.nodes)
    ranks = min(dp, group.gpus_per_node // tp)
    nodes = dp // ranks
    inside = 2 * (ranks - 1) / ranks * rings / group.intra_node.bandwidth_bytes_per_s
    between = 2 * (nodes - 1) / nodes * rings / group.inter_node.bandwidth_bytes_per_s
    worked_out_ns = tables.gradient_bytes[:, 0] * (inside + between) * 1e9
    assert costs.sync_ns[0] == pytest.approx(worked_out_ns, abs=2)
