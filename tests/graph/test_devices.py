"""The graph of devices with several chunks each: it holds every plan, once."""

from itertools import product

import pytest

from formulations.costs.placement import Placer
from solver.graph.all_orders import order_graph
from solver.graph.cuts import family_cuts
from solver.graph.devices import DeviceGraph
from solver.graph.problem import Intervals
from tests import brute_force
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, drawn_tables
from tests.random_configs import random_optimum_ns, random_tables
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import each_of


@pytest.mark.parametrize("zones", [False, True])
@each_of(range(200), 40)
def test_the_graph_holds_every_plan(seed: int, zones: bool) -> None:
    costs = random_tables(seed, zones, "interleaved")
    intervals = Intervals(costs)
    share = costs.num_micro_batches // costs.config.dp
    problem = present(order_graph(intervals, Placer(costs), share))
    graph = DeviceGraph(intervals, problem)
    layers = present(graph.everything(NO_CUTOFF))
    arcs, splits = graph.plans(layers)
    nodes = sum(costs.config.nodes_used)
    orders = [problem.order(path * costs.config.vpp)[:nodes] for path in arcs.tolist()]
    plans = list(zip(orders, map(tuple, splits.tolist()), strict=True))
    assert len(set(plans)) == len(plans) == graph.count(layers)
    every = set(product(brute_force.all_orders(costs), brute_force.all_splits(costs)))
    assert set(plans) <= every
    if (costs.capacity_bytes >= 8e9).all():
        assert set(plans) == every
    # What paths of any schedule refute is below the best plan, but a tenth of it is refuted.
    best, paths = random_optimum_ns(seed, zones, "interleaved"), family_cuts(problem)
    if best is not None:
        for cutoff, holds in ((best + 1, True), (best // 10, False)):
            kept = graph.thinned(layers, paths.rows, paths.device, cutoff)
            assert (kept is not None) == holds, seed


@recorded("devices")
def test_graphs_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Edges and plans, of all and of what paths leave; too many edges are no graph."""
    for name, costs in drawn_tables().items():
        intervals, share = Intervals(costs), costs.num_micro_batches // costs.config.dp
        problem = order_graph(intervals, Placer(costs), share)
        if costs.config.vpp == 1 or problem is None or not problem.stages:
            continue
        graph, paths = DeviceGraph(intervals, problem), family_cuts(problem)
        layers = present(graph.everything(NO_CUTOFF))
        left = []
        for power in range(2, 18):
            cutoff = int(costs.longest_ns * 0.8**power)
            kept = graph.thinned(layers, paths.rows, paths.device, cutoff)
            left.append(0 if kept is None else graph.count(kept))
            fewer = graph.everything(cutoff)
            left.append(-1 if fewer is None else sum(map(len, fewer)))
        yield name, [digest(summary([layers])), graph.count(layers), left]
        for limit, holds in ((sum(map(len, layers)), True), (sum(map(len, layers)) - 1, False)):
            monkeypatch.setattr("solver.graph.devices.MOST_EDGES", limit)
            assert (graph.everything(NO_CUTOFF) is not None) == holds
        monkeypatch.undo()
