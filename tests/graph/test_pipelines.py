"""Pipelines whose stages choose their GPUs, as split problems."""

from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from formulations.node_sharing import NodeSplit
from solver.enumeration.engine import solve_split
from solver.graph.gpu_graph import GpuGraph
from solver.graph.pipelines import FreeDegrees
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, random_places, small_case

NO_CUTOFF = 1 << 40


def test_arcs_hold_pipelines_of_every_length() -> None:
    """Two nodes of two GPUs: 2 to 4 stages, at first empty ones, which lead to the same places.

    One stage alone is no pipeline.
    """
    alone = GpuGraph(random_places(1, 6, [1], [1], NodeSplit.ANY), [(1,)])
    assert FreeDegrees(alone, 4).arcs == []
    graph = GpuGraph(random_places(1, 6, [2], [2], NodeSplit.ANY), [(2,)])
    arcs = FreeDegrees(graph, 4).arcs
    # 1: empty, or one GPU, as 3 stages have to follow. 2: from there the next GPU; from the start
    # empty, one or two GPUs. 3: two GPUs from the start; a node's second; one of the next node
    # after a full one, whose last stage has one GPU or two. 4: the GPUs left of these 3 states.
    assert [len(stage) for stage in arcs] == [2, 4, 4, 3]
    assert [sum(arc.what is None for arc in stage) for stage in arcs] == [1, 1, 0, 0]
    # Tied embeddings, of the one place that they take any time at.
    assert FreeDegrees(graph, 4).problem.stages[-1].embedding.tolist() == [0, 0, 4]


def test_every_gpu_works_on_its_fastest_layers() -> None:
    """Four micro-batches of 1 + 3 + 2 ns on three GPUs, each the fastest of all on some layer."""
    times = interval_sums(np.array([[2, 3, 2], [1, 5, 4]]))
    places = random_places(1, 3, [1, 1], [2, 1], NodeSplit.ANY)
    graph = GpuGraph(replace(places, forward=times, backward=0 * times), [(2, 1)])
    assert FreeDegrees(graph, 4).least_ns() == 7  # 8, less what floats may err


@pytest.mark.parametrize("seed", one_each(range(24), 6))
def test_the_best_path_is_a_template_and_none_is_below_the_work(seed: int) -> None:
    """Its layers and GPUs are those of one of all templates."""
    places = small_case(seed, NodeSplit.ANY)
    for number, finals in finals_of(places).items():
        pipelines = FreeDegrees(GpuGraph(places, finals), 3)
        if not pipelines.arcs:
            continue
        found = solve_split(pipelines.problem, NO_CUTOFF)
        assert found.arcs is not None
        assert found.split is not None
        assert found.step_time_ns is not None
        assert pipelines.least_ns() <= found.step_time_ns
        template = pipelines.template(found.arcs.tolist(), found.split.tolist())
        assert template in set(all_templates(places, number))
