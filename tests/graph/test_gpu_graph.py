"""Where stages of free size may stand: counted by hand."""

from dataclasses import replace

from formulations.node_sharing import NodeSplit
from solver.graph.gpu_graph import GpuGraph, State
from tests.template_cases import random_places


def graph(nodes: int, gpus: int = 2) -> GpuGraph:
    """One group of nodes, stages of any number of their GPUs."""
    return GpuGraph(random_places(1, 6, [gpus], [nodes], NodeSplit.ANY), [(nodes,)])


def test_two_nodes_of_two_gpus_hold_two_to_four_stages() -> None:
    """Each node is one stage of two GPUs or two of one; three GPUs are three, two or one stage."""
    assert graph(2).numbers == [2, 3, 4]
    assert graph(1, 3).numbers == [1, 2, 3]
    assert graph(1, 3).start == State((0,), 0, None)


def test_a_stage_of_four_gpus_takes_two_nodes_of_two() -> None:
    """Both are full then."""
    places = replace(random_places(1, 6, [2], [2], NodeSplit.ANY), gpus=(1, 4))
    graph = GpuGraph(places, [(2,)])
    assert [step.after.used for step in graph.steps[graph.start]] == [(1,), (2,)]


def test_a_stage_fills_the_node_that_was_begun() -> None:
    """After one GPU of a node only another one of it may follow; then the node is full."""
    found = graph(1)
    assert [step.fresh for step in found.steps[found.start]] == [True, True]
    begun = next(state for state in found.steps if state.filled == 1)
    (step,) = found.steps[begun]
    assert (step.fresh, step.after.filled, found.is_end(step.after)) == (False, 2, True)
    assert found.steps[step.after] == []
    assert found.may_be_followed(begun, 1)
    assert not found.may_be_followed(begun, 2)
