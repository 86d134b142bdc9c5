"""The verifier's graph of all node orders, and what it refutes with it."""

import pytest

from solver.verify.orders import LaneGraph, OrderGraph, Spot, Tally
from tests.bounds.test_node_classes import two_groups
from tests.graph.drawn import uneven_tables
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded, summary


def test_a_lane_may_stay_on_a_node_that_holds_more_than_a_stage() -> None:
    """Two replicas in lanes of one: nodes of three slots reach into the next stage, of one do not.

    8 MB at 1 GB/s, and 10 us between nodes.
    """
    tables = two_groups((3, 1), (2, 2), 2).tables
    graph = LaneGraph(tables, Tally(((), ()), ()), (), (None,) * 4, apart=False)
    sends = [graph.sends(1, (Spot(j, 0),), (Spot(j, 2),)) for j in range(2)]
    assert sends == [[(8_000_000,)], [(8_010_000,)]]


@pytest.mark.parametrize("zones", [False, True])
@recorded("verify_orders")
def test_steps_are_as_recorded(zones: bool) -> Cases:
    drawn = {f"seed {seed}": random_tables(seed, zones) for seed in range(0, 80, 5)}
    drawn |= {f"uneven {seed}": uneven_tables(seed) for seed in (0, 8) if not zones}
    for name, tables in drawn.items():
        parts, used = list[object](), tables.config.groups_used
        groups = len(tables.config.nodes_used)
        unit = Tally(tuple((j,) for j in range(groups)), (tables.config.pp,))
        hosts = tuple(used) if name.startswith("uneven") else None
        graphs = [OrderGraph(tables, apart=apart) for apart in (False, True)]
        graphs += [
            LaneGraph(tables, unit, (1,), (hosts,) * tables.config.pp, apart)
            for apart in (False, zones)
        ]
        for graph in graphs:
            for step in graph.built:
                parts += [step.source, step.target, step.group, step.send, step.back, step.tail]
                parts += [len(step.begins), step.num_targets, [sum(j) for j in step.begins]]
            parts += [graph.alike, *graph.epilogues.all_ns]
        yield f"{name}, zones {zones}", digest(summary(parts))
