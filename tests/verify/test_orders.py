"""The verifier's graph of all node orders, and what it refutes with it."""

from collections.abc import Iterable

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from formulations.costs.tables import CostTables
from solver.verify.orders import LaneGraph, OrderGraph, Spot, Tally
from tests import brute_force
from tests.bounds.test_node_classes import two_groups
from tests.random_configs import random_tables
from tests.seeds import one_each

#: What a step is made of: lane by lane its node groups and transfers, and the tail over layers.
Content = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bytes]


def in_order(tables: CostTables, groups: Iterable[int]) -> tuple[int, ...]:
    """Groups of lanes; of a single stage, of which one order stands for all, sorted."""
    return tuple(groups) if tables.config.pp > 1 else tuple(sorted(groups))


def by_graph(tables: CostTables) -> list[set[Content]]:
    """Per stage all that the graph knows of its steps."""
    graph = OrderGraph(tables)
    assert graph.steps is not None
    return [
        {
            (
                in_order(tables, step.group[i].tolist()),
                tuple(tuple(times) for times in step.send[i].tolist()),
                graph.epilogues.all_ns[step.tail[i]].tobytes(),
            )
            for i in range(len(step.source))
        }
        for step in graph.steps
    ]


def by_size(times: dict[int, int]) -> tuple[int, ...]:
    """Times by number of tensors, fewest first."""
    return tuple(times[n] for n in sorted(times))


def by_orders(tables: CostTables) -> list[set[Content]]:
    """The same from every order, each placed slot by slot."""
    dp, pp = tables.config.dp, tables.config.pp
    lanes, none = OrderGraph(tables).lanes, (0,) * len(tables.tensors)
    found: list[set[Content]] = [set() for _ in range(pp)]
    for order in brute_force.all_orders(tables):
        placed = brute_force.place(tables, order)
        for k in range(pp):
            slots = [k * dp + r for r in lanes]
            groups = placed.groups[k * dp : (k + 1) * dp]
            tail = interval_sums(np.array(placed.sync[k])) + placed.sync_start[k]
            tail += interval_sums(np.array(placed.gather[k])) + placed.gather_start[k]
            tail += np.max([interval_sums(tables.optimizer_ns[:, j]) for j in groups], axis=0)
            found[k].add(
                (
                    in_order(tables, (placed.groups[s] for s in slots)),
                    tuple(by_size(placed.send[s - dp]) if k else none for s in slots),
                    tail.tobytes(),
                )
            )
    return found


@pytest.mark.parametrize("seed", one_each(range(80), 10))
def test_steps_are_those_of_all_orders(seed: int) -> None:
    """Groups, transfers and tails of every stage are the ones that some order has, to the ns.

    Tails without tied embeddings: an order knows these only as a whole.
    """
    tables = random_tables(seed)
    known = 2 if tables.tied else 3
    cut = [
        [{one[:known] for one in stage} for stage in way(tables)] for way in (by_graph, by_orders)
    ]
    assert cut[0] == cut[1]


@pytest.mark.parametrize("seed", one_each(range(80), 10))
def test_transfers_between_zones_are_those_of_all_orders(seed: int) -> None:
    """Two neighbouring stages decide what the link between zones carries, to the ns."""
    tables = random_tables(seed, zones=True)
    known, all_known = (
        [{one[:2] for one in st} for st in way(tables)] for way in (by_graph, by_orders)
    )
    assert known == all_known


def test_a_lane_may_stay_on_a_node_that_holds_more_than_a_stage() -> None:
    """Two replicas in lanes of one: nodes of three slots reach into the next stage, of one do not.

    8 MB at 1 GB/s, and 10 us between nodes.
    """
    tables = two_groups((3, 1), (2, 2), 2).tables
    graph = LaneGraph(tables, Tally(((), ()), ()), (), (None,) * 4, apart=False)
    sends = [graph._send_ns(1, Spot(j, range(1)), Spot(j, range(2, 3)), 1) for j in range(2)]
    assert sends == [[8_000_000], [8_010_000]]
