"""Schedules as fixed operation orders."""

import numpy as np
import pytest

from formulations.instance.instance import ScheduleName
from formulations.schedules import device_order, in_flight, schedule_graph
from tests.brute_force import most_in_flight, operations

SIZES = [(p, m) for p in (1, 2, 3, 5) for m in (1, 2, 3, 4, 9)]
SCHEDULES: list[ScheduleName] = ["1f1b", "gpipe"]


def words(schedule: ScheduleName, p: int, k: int, m: int) -> str:
    """Operations of a stage as F0 F1 B0 ..."""
    return " ".join(
        f"{'B' if backward else 'F'}{i}" for backward, i in device_order(schedule, p, k, m)
    )


def test_1f1b_with_three_stages() -> None:
    """Stage k of 3 warms up with 2 - k forwards (PipeDream; Narayanan et al. 2021, figure 4)."""
    assert words("1f1b", 3, 0, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words("1f1b", 3, 1, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert words("1f1b", 3, 2, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_1f1b_with_fewer_micro_batches_than_stages() -> None:
    """A warm-up longer than the batch is the whole batch."""
    assert words("1f1b", 4, 0, 2) == "F0 F1 B0 B1"


def test_gpipe_runs_all_forwards_first() -> None:
    """GPipe: all forwards, then all backwards, on every stage."""
    assert words("gpipe", 2, 0, 3) == "F0 F1 F2 B0 B1 B2"
    assert words("gpipe", 2, 1, 3) == "F0 F1 F2 B0 B1 B2"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_order_is_as_many_forwards_ahead_as_allowed(schedule: ScheduleName, p: int, m: int) -> None:
    """1F1B is the greedy order with at most p - k micro-batches in flight; GPipe has no limit."""
    for k in range(p):
        order = [("B" if backward else "F", i) for backward, i in device_order(schedule, p, k, m)]
        assert order == operations(schedule, p, k, m)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_in_flight_is_the_most_activations_held(schedule: ScheduleName, p: int, m: int) -> None:
    """The closed form equals a count along the order."""
    for k in range(p):
        assert in_flight(schedule, p, k, m) == most_in_flight(schedule, p, k, m)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_fewer_micro_batches_leave_the_order_of_the_rest(
    schedule: ScheduleName, p: int, m: int
) -> None:
    """Without its last micro-batch an order is that of m - 1: cuts carry over to larger m."""
    for k in range(p):
        longer = [one for one in device_order(schedule, p, k, m + 1) if one[1] < m]
        assert longer == list(device_order(schedule, p, k, m))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_levels_follow_their_predecessors(schedule: ScheduleName, p: int, m: int) -> None:
    """Every operation appears once, after what it waits for."""
    graph = schedule_graph(schedule, p, m)
    level = np.full(graph.num_operations + 1, -1)
    for number, one in enumerate(graph.levels):
        assert (level[one.operation] == -1).all()
        level[one.operation] = number
        assert (level[one.device_before] < number).all()
        assert (level[one.data_before] < number).all()
    assert (level[:-1] >= 0).all()
    assert graph.num_operations == 2 * m * p


def test_data_edges_of_two_stages() -> None:
    """F(1, i) waits for F(0, i) over transfer 0; B(0, i) for B(1, i) over transfer 1."""
    graph = schedule_graph("1f1b", 2, 2)
    # Stage 0 holds operations 0-3 = F0 F1 B0 B1, stage 1 holds 4-7 = F0 B0 F1 B1; 8 is none.
    assert graph.data_before.tolist() == [8, 8, 5, 7, 0, 4, 1, 6]
    assert graph.transfer.tolist() == [2, 2, 1, 1, 0, 2, 0, 2]
    assert graph.last_backward.tolist() == [3, 7]
