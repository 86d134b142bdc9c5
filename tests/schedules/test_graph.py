"""Operation graphs: what waits for what, and in which levels."""

from itertools import product
from typing import get_args

import numpy as np
import pytest

from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from formulations.schedules.operations import Kind
from formulations.schedules.registry import SCHEDULES


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_levels_follow_their_predecessors(schedule: ScheduleName) -> None:
    """Every operation appears once, after what it waits for; 2 m S, or 3 m S, in all."""
    interleaves, splits = SCHEDULES[schedule].interleaves, SCHEDULES[schedule].splits_backward
    for p, m in product((1, 2, 3, 5), (1, 2, 4, 9)):
        v, m = (2, m * p) if interleaves else (1, m)
        graph = schedule_graph(schedule, p, m, v)
        level = np.full(graph.num_operations + 1, -1)
        for number, group in enumerate(graph.levels):
            assert (level[group.operation] == -1).all()
            level[group.operation] = number
            assert (level[group.device_before] < number).all()
            assert (level[group.data_before] < number).all()
        assert (level[:-1] >= 0).all()
        assert graph.num_operations == (2 + splits) * m * p * v


def test_data_edges_of_two_stages() -> None:
    """F(1, i) waits for F(0, i) over transfer 0; B(0, i) for B(1, i) over transfer 1."""
    graph = schedule_graph("1f1b", 2, 2)
    # Stage 0 holds operations 0-3 = F0 F1 B0 B1, stage 1 holds 4-7 = F0 B0 F1 B1; 8 is none.
    assert graph.data_before.tolist() == [8, 8, 5, 7, 0, 4, 1, 6]
    assert graph.device_before.tolist() == [8, 0, 1, 2, 8, 4, 5, 6]
    assert graph.transfer.tolist() == [2, 2, 1, 1, 0, 2, 0, 2]
    assert graph.weight.tolist() == [0, 0, 2, 2, 1, 3, 1, 3]
    assert graph.micro_batch.tolist() == [0, 1, 0, 1, 0, 0, 1, 1]
    assert graph.last.tolist() == [3, 7]
    levels = [group.operation.tolist() for group in graph.levels]
    assert levels == [[0], [1, 4], [5], [2, 6], [7], [3]]


def test_weight_gradients_wait_for_their_backward() -> None:
    """One stage of ZB-H1 with one micro-batch: F0 B0 W0."""
    graph = schedule_graph("zb-h1", 1, 1)
    assert graph.data_before.tolist() == [3, 0, 1]
    assert [tuple(graph.operation(i)) for i in range(3)] == [(kind, 0, 0) for kind in Kind]
