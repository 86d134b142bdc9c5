"""What stages add to the latency of one lane: never more than the simulated step says."""

from solver.bounds.latency_bottleneck import (
    latencies,
    least_path,
    least_terms,
    path_of,
    terms,
    tighten,
)
from solver.graph.edges import build_layers, to_go
from tests.graph.drawn import NO_CUTOFF, best_ns, problems
from tests.recorded import Cases, digest, recorded, summary


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
        least = least_terms(layers)
        paths = []
        for more in (0, 1, 4, 100):
            path = least_path(layers, least * (20 + more) // 20)
            paths.append(None if path is None else path_of(layers, path[None]))
        latency = latencies(layers)
        of_stages = latency, terms(problem, layers, to_go(layers, latency))
        costs = [[[x[lane] for x in y] for y in of_stages] for lane in range(problem.num_lanes)]
        yield name, [left, least.tolist(), digest(summary([costs, paths]))]
