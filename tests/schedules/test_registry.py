"""Schedules as fixed operation orders."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules import registry
from formulations.schedules.graph import schedule_graph
from formulations.schedules.operations import Kind, sizes_of_groups
from formulations.schedules.registry import device_order, held, in_flight, stage_moments
from solver.simulate import Times, simulate
from tests.recorded import Cases, recorded
from tests.recursion import most_in_flight

STAGES = [(p, k, m) for p in (1, 2, 3, 5) for k in range(p) for m in (1, 2, 3, 4, 9)]
SCHEDULES: list[ScheduleName] = ["1f1b", "gpipe"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_flight_is_the_most_activations_held(schedule: ScheduleName) -> None:
    """And without its last micro-batch an order is that of m - 1: cuts carry over to larger m."""
    for p, k, m in STAGES:
        assert in_flight(schedule, p, k, m) == most_in_flight(schedule, p, k, m)
        longer = [op for op in device_order(schedule, p, k, m + 1) if op.micro_batch < m]
        assert longer == list(device_order(schedule, p, k, m))


def test_zero_bubble_figures_of_its_authors(reference: Path) -> None:
    """ZB-H1's span and its peaks of memory, where the authors' memory limit is that of 1F1B."""
    cases = json.loads((reference / "schedules" / "zero_bubble.json").read_text())["cases"]
    cases = [c for c in cases if c.get("kind") is None and c["max_mem"] == c["mem_f"] * c["p"]]
    assert len(cases) == 7
    for case in cases:
        p, m = case["p"], case["m"]

        def column(name: str, rows: int, case: dict[str, int] = case) -> NDArray[np.int64]:
            return np.full((rows, 1), case[name], dtype=np.int64)

        graph = schedule_graph("zb-h1", p, m)
        times = Times(column("F", p), column("B", p), column("comm", p - 1), weight=column("W", p))
        end = simulate(graph, times)[:, 0]
        begin = end[graph.index[0, :, 0]] - case["F"]
        assert (end[graph.last] - begin).max() == case["result"]["stage_span"]
        assert end.max() == case["result"]["wall"]
        sizes = case["mem_f"], -case["mem_w"]
        peaks = [(np.array(held("zb-h1", p, k, m)) @ sizes).max() for k in range(p)]
        assert peaks == case["result"]["peak"]


@pytest.mark.parametrize(
    "schedule", [name for name, one in registry.SCHEDULES.items() if one.settles]
)
@pytest.mark.parametrize(
    ("p", "v", "size"), [(1, 1, 1), (2, 3, 2), (3, 1, 3), (4, 2, 4), (2, 2, 5)]
)
def test_devices_hold_no_more_for_more_micro_batches(
    schedule: ScheduleName, p: int, v: int, size: int
) -> None:
    """What `held` looks at, a few micro-batches per stage, has the fullest moments of many."""
    chunks, sizes = (v, [size]) if registry.SCHEDULES[schedule].interleaves else (1, [])
    for m in range(p, 9 * p * chunks):
        if sizes and not sizes_of_groups(p, m, sizes):
            continue
        for device in range(p):
            order = np.array(list(device_order(schedule, p, device, m, chunks, *sizes)))
            change = 1 * (order[:, 0] == Kind.FORWARD) - (order[:, 0] == Kind.BACKWARD)
            most = int(np.cumsum(change).max())
            assert most == max(
                sum(row[:-1]) for row in held(schedule, p, device, m, chunks, *sizes)
            )


@recorded("fullest_moments")
def test_fullest_moments_are_the_recorded_ones() -> Cases:
    """ZB-H1, last of 3 stages, 5 micro-batches: F0 B0 F1 B1 F2 B2 W0 F3 B3 ...: 2 wait beside F2.

    After B2 three wait and none is whole.
    """
    assert stage_moments("zb-h1", 3, 2, 5) == ((0, 3), (1, 2))
    for name, schedule in registry.SCHEDULES.items():
        for p, v, m in ((2, 2, 4), (3, 2, 9), (4, 3, 40)):
            v = v if schedule.interleaves else 1
            m = m // p * p if schedule.interleaves else m
            moments = [list(map(list, stage_moments(name, p, s, m, v))) for s in range(p * v)]
            fullest = [held(name, p, device, m, v) for device in range(p)]
            rows = [[[row[:-1] for row in each], [row[-1] for row in each]] for each in fullest]
            yield f"{name} {p} {v} {m}", [moments, rows]
