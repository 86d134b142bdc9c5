"""Costs of stages with degrees of their own: as docs/cost.md says, and on one kind of nodes."""

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.stage_places import StagePlacer, placement_of, stage_tables, with_stages
from formulations.plan import Degrees
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.small_instances import plain_config

test_pages_suffice = pages_suffice(0, 11, 16, 21, 38, 46, 54)


@pytest.mark.parametrize(("tp", "dp"), [(1, 2), (2, 1), (2, 2)])
def test_alike_degrees_cost_what_plans_of_one_degree_do(tp: int, dp: int) -> None:
    """Two stages on nodes of two GPUs: in a node each, on both with the other, on two each."""
    nodes = 2 * tp * dp // 2
    alike = equal_nodes(nodes, 2, tp, dp, 2)
    config = plain_config((nodes,), dp=dp, pp=2)
    tables = stage_tables(alike.instance, config, ((0, Degrees(tp=tp)),))
    assert StagePlacer(tables).num_nodes(0) == tp * dp // 2
    own, placed = placement_of(tables, (0, 0)), Placer(tables).costs([0] * nodes)
    for name in ("send_ns", "sync_ns", "sync_latency_ns", "gather_ns", "embedding_ns"):
        assert np.array_equal(getattr(own, name), getattr(placed, name)), name


def test_another_number_of_stages() -> None:
    tables = stage_tables(
        equal_nodes(2, 2, 1, 2, 2).instance, plain_config((2,), dp=2, pp=2), ((0, Degrees(tp=1)),)
    )
    longer = with_stages(tables, 4)
    assert (longer.config.pp, longer.plan_config.pp) == (4, 4)
    assert longer.forward_ns is tables.forward_ns
