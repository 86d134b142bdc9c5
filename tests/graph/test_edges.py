"""Edges of the layered graph, and sums along its paths, by hand."""

import numpy as np

from bench.splits import chain_problem
from solver.graph.edges import (
    Level,
    build_layers,
    renumbered,
    shortest_path,
    so_far,
    taken,
    to_go,
)
from solver.graph.problem import SplitProblem


def chain(layers: int = 4) -> SplitProblem:
    """Three stages, layers of 1, 2, 3, .. ns there and 1 back, two micro-batches."""
    times = np.tile(np.arange(1, layers + 1), (3, 1))
    return chain_problem("1f1b", 2, times, times * 0 + 1, [5, 6], [7, 8])


def test_shortest_ways_from_the_start_and_to_the_end() -> None:
    """From node 0 to nodes 0 and 1, and on to node 0: 3 + 1 and 1 + 4 ns."""
    first = Level(np.array([0, 0]), np.array([0, 1]), 1, 2)
    second = Level(np.array([0, 1]), np.array([0, 0]), 2, 1)
    graph, costs = [first, second], [np.array([3, 1]), np.array([1, 4])]
    assert [ns.tolist() for ns in so_far(graph, costs)] == [[0], [3, 1], [4]]
    onward = to_go(graph, costs)
    assert [ns.tolist() for ns in onward] == [[4], [1, 4], [0]]
    assert shortest_path(graph, costs, onward).tolist() == [0, 0]


def test_edges_are_the_runs_of_layers_on_ways_to_the_end() -> None:
    """Four layers on three stages: three splits, two ends of the first, two starts of the last."""
    layers = build_layers(chain(), 1 << 40)
    ends = [sorted(zip(edges.start.tolist(), edges.end.tolist(), strict=True)) for edges in layers]
    assert ends == [[(0, 1), (0, 2)], [(1, 2), (1, 3), (2, 3)], [(2, 4), (3, 4)]]
    first, middle, last = layers
    # Layer 1, 2 ns there and 1 back, and transfers of 5 and 7 ns; two micro-batches of 3 ns.
    assert middle.latency[0].tolist() == [15, 19, 16]
    assert (first.work[0].tolist(), last.tail.tolist()) == ([2, 5], [0, 0])


def test_nodes_are_numbered_anew() -> None:
    """Without the edges from layer 2 on the middle nodes that are left are 0 and 1."""
    layers = build_layers(chain(), 1 << 40)
    left = renumbered(taken(layers, [edges.start != 2 for edges in layers]))
    assert [edges.num_targets for edges in left][-1] == 1
    assert left[0].source.tolist() == [0, 0]
