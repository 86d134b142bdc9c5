"""All node orders at once: as good as one after the other, and none beyond the limit."""

import pytest

from formulations.costs.placement import Placer
from formulations.instance.search import ScheduleName
from solver.enumeration.engine import solve_split
from solver.graph import all_orders
from solver.graph.all_orders import lane_width, order_graph
from solver.graph.placements import StageZones
from solver.graph.problem import Intervals
from tests import brute_force
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, drawn_tables, even_tables, figures
from tests.recorded import Cases, recorded
from tests.seeds import one_each


@pytest.mark.parametrize("schedule", [None, "zb-h1"])
@pytest.mark.parametrize("seed", one_each(range(48), 8))
def test_all_orders_at_once_equal_brute_force(seed: int, schedule: ScheduleName | None) -> None:
    """The free order finds the least step time over every order and split that fits."""
    costs = even_tables(seed, schedule)
    if costs is None:
        pytest.skip("no such configuration")
    share = costs.num_micro_batches // costs.config.dp
    problem = present(order_graph(Intervals(costs), Placer(costs), share))
    outcome = solve_split(problem, NO_CUTOFF)
    assert outcome.complete
    assert outcome.step_time_ns == brute_force.optimum_ns(costs)


@recorded("all_orders")
def test_problems_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Of replicas in lanes; with stages that may span zones, and with such that may not."""
    for name, costs in drawn_tables().items():
        intervals, placer = Intervals(costs), Placer(costs)
        graphs = [order_graph(intervals, placer, 3, split) for split in (False, True)]
        arcs = [graph and sum(len(stage.source) for stage in graph.stages) for graph in graphs]
        orders = [graph and graph.order([0] * graph.num_stages) for graph in graphs]
        share, zoned = -(-costs.num_micro_batches // costs.config.dp), StageZones(placer).known
        free = [order_graph(intervals, placer, share, split) for split in (False, True)]
        free[0] = None if zoned else free[0]
        shares = [problem and problem.micro_batches for problem in free]
        yield name, [lane_width(costs), arcs, orders, shares, [g and figures(g) for g in graphs]]
    monkeypatch.setattr(all_orders, "ARC_LIMIT", 1)
    costs = drawn_tables()["even 5"]
    assert order_graph(Intervals(costs), Placer(costs), 4) is None
