"""Operation graphs: what waits for what, and in which levels."""

from itertools import product
from typing import get_args

import numpy as np
import pytest

from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from formulations.schedules.registry import SCHEDULES
from tests.recorded import Cases, digest, recorded, summary


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


@recorded("schedule_graphs")
def test_graphs_are_the_recorded_ones() -> Cases:
    for schedule, (p, v, m) in product(get_args(ScheduleName), ((1, 1, 2), (2, 2, 4), (3, 2, 6))):
        v = v if SCHEDULES[schedule].interleaves else 1
        if p > 1 or not SCHEDULES[schedule].interleaves:
            graph = schedule_graph(schedule, p, m, v)
            arrays = graph.index, graph.data_before, graph.device_before, graph.transfer
            rest = graph.weight, graph.micro_batch, graph.last
            levels = [group.operation for group in graph.levels]
            operations = digest([graph.operation(i) for i in range(graph.num_operations)])
            yield f"{schedule} {p} {v} {m}", [summary([*arrays, *rest, *levels]), operations]
