"""Edges of the layered graph, and sums along its paths, of drawn problems."""

import numpy as np

from solver.graph.edges import (
    build_layers,
    has_split,
    renumbered,
    shortest_path,
    so_far,
    taken,
    to_go,
)
from tests.graph.drawn import NO_CUTOFF, best_ns, problems
from tests.recorded import Cases, digest, recorded, summary


@recorded("edges")
def test_edges_are_the_recorded_ones() -> Cases:
    """All, and those that no device alone refutes below a cutoff; numbered anew without some."""
    for name, problem in problems().items():
        layers = build_layers(problem, NO_CUTOFF)
        assert has_split(problem) == all(map(len, layers))
        if not has_split(problem):
            continue
        fewer = build_layers(problem, (best_ns(name) or NO_CUTOFF) * 4 // 3)
        odd = [np.arange(len(edges)) % 3 > 0 for edges in layers]
        numbered = renumbered(taken(layers, odd))
        costs = [edges.latency.sum(axis=0) for edges in layers]
        onward = to_go(layers, costs)
        path = shortest_path(layers, costs, onward)
        assert sum(cost[at] for cost, at in zip(costs, path, strict=True)) == onward[0][0]
        marks = [[edges.filled, edges.opens, edges.least] for edges in layers]
        every = summary([layers, numbered, onward, so_far(layers, costs), path, marks])
        yield name, [sum(map(len, layers)), sum(map(len, fewer)), digest(every)]
