"""Path families: paths of the graph by construction, and as long as the schedules state."""

import random
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest

from formulations.instance.search import Chunking, ScheduleName
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.paths import device_path, last_down, path_counts, returned
from formulations.schedules.registry import SCHEDULES
from solver.simulate import Array, Times, simulate
from tests.recorded import Cases, digest, recorded

NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)


def graphs(schedule: ScheduleName) -> Iterator[tuple[ScheduleGraph, Chunking]]:
    """Small graphs of a schedule, with their chunks per device and groups of micro-batches."""
    chunks = (2, 3) if SCHEDULES[schedule].interleaves else (1,)
    for p in range(1 + SCHEDULES[schedule].interleaves, 5):
        for v in chunks:
            step = p if SCHEDULES[schedule].interleaves else 1
            for m in range(step, 9, step):
                yield schedule_graph(schedule, p, m, v), (v, p)
    if SCHEDULES[schedule].interleaves:
        yield schedule_graph(schedule, 2, 7, 2, 5), (2, 5)
        yield schedule_graph(schedule, 3, 7, 3, 4), (3, 4)


def random_times(graph: ScheduleGraph, rng: random.Random) -> Times:

    def column(rows: int) -> Array:
        values = [rng.randint(1, 9) for _ in range(rows)]
        return np.array(values, dtype=np.int64).reshape(rows, 1)

    stages = graph.num_stages
    weight = column(stages) if len(graph.index) == 3 else None
    return Times(column(stages), column(stages), column(stages - 1), weight=weight)


def families(graph: ScheduleGraph) -> Iterator[Array]:
    for device in range(graph.num_devices):
        yield device_path(graph, device)
        yield device_path(graph, device, device)
    for stage in range(graph.num_stages):
        yield returned(graph, stage)


@pytest.mark.parametrize("schedule", NAMES)
def test_no_family_is_longer_than_the_step(schedule: ScheduleName) -> None:
    rng = random.Random(7)
    for graph, _ in graphs(schedule):
        times = random_times(graph, rng)
        makespan = simulate(graph, times).max()
        for path in families(graph):
            counts = path_counts(graph, path)
            length = counts.weights @ times.weights[:, 0] + counts.transfers @ times.transfers[:, 0]
            assert length <= makespan


@recorded("paths")
def test_paths_are_the_recorded_ones() -> Cases:
    """Of every stage of small graphs, operation by operation."""
    for schedule in ("1f1b", "zb-h1", "interleaved"):
        for graph, (v, _) in graphs(schedule):
            stages, devices = range(graph.num_stages), range(graph.num_devices)
            paths = [[member(graph, k) for k in stages] for member in (returned, last_down)]
            paths.append([device_path(graph, device) for device in devices])
            name = f"{schedule} {graph.num_devices} {v} {graph.micro_batches}"
            yield name, digest([[path.tolist() for path in member] for member in paths])


def test_what_is_no_path_is_refused() -> None:
    graph = schedule_graph("1f1b", 2, 3)
    first, other = graph.index[0, 0, 0], graph.index[0, 1, 1]
    with pytest.raises(ValueError, match="no arc between"):
        path_counts(graph, [int(first), int(other)])
