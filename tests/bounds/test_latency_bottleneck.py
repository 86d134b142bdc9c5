"""What stages add to the latency of one lane: never more than the simulated step says."""

import numpy as np

from solver.bounds.latency_bottleneck import (
    latencies,
    least_path,
    least_term,
    path_of,
    terms,
    tighten,
)
from solver.graph.cuts import evaluate
from solver.graph.edges import build_layers, renumbered, shortest_path, to_go
from tests.graph.drawn import NO_CUTOFF, best_ns, problems
from tests.recorded import Cases, digest, recorded, summary


def test_no_step_is_below_what_stages_add() -> None:
    """On shortest paths: latency and the most that a stage adds; sometimes no less either."""
    tight = 0
    for problem in problems().values():
        layers = build_layers(problem, NO_CUTOFF)
        usable = problem.chunks == 1 and all(map(len, layers))
        for lane in range(problem.num_lanes * usable):
            costs = latencies(layers, lane)
            path = shortest_path(layers, costs, to_go(layers, costs))
            single = [edges.take(np.array([at])) for edges, at in zip(layers, path, strict=True)]
            added = max(int(stage[0]) for stage in terms(problem, renumbered(single), lane))
            bound = sum(int(cost[at]) for cost, at in zip(costs, path, strict=True)) + added
            step_ns = evaluate(problem, *path_of(layers, path[None])).step_time[0]
            assert bound <= step_ns
            tight += bound == step_ns
    assert tight >= 8


@recorded("latency_bottleneck")
def test_bounds_are_the_recorded_ones() -> Cases:
    """Edges left below cutoffs, least terms of lanes, and paths within limits on these."""
    for name, problem in problems().items():
        best, layers = best_ns(name), build_layers(problem, NO_CUTOFF)
        if best is None:
            continue
        left = []
        for part in (8, 9, 10, 11, 13):
            tight = tighten(problem, build_layers(problem, best * part // 10), best * part // 10)
            left.append(None if tight is None else list(map(len, tight)))
        lanes = range(problem.num_lanes)
        least = [least_term(layers, lane) for lane in lanes]
        paths = []
        for more in (0, 1, 4, 100):
            path = least_path(layers, np.array(least) * (20 + more) // 20)
            paths.append(None if path is None else path_of(layers, path[None]))
        costs = [[latencies(layers, lane), terms(problem, layers, lane)] for lane in lanes]
        yield name, [left, least, digest(summary([costs, paths]))]
