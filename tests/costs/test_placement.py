"""Placement costs: those of the pages, and figures of drawn node orders."""

import random

import numpy as np

from formulations.costs.placement import Placer
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
    costs = Placer(equal_nodes(2, 2, 1, 2, tied=True, cp=2)).costs([0, 0])
    assert costs.embedding_ns == 2 * 4_096_000 + 20_000
