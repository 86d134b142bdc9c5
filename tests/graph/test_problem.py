"""Split problems: distinct rows are numpy's; memory of intervals, devices and their chunks."""

import numpy as np
import pytest

from formulations.costs.placement import Placer
from solver.graph.placements import fixed_order, replica_classes
from solver.graph.problem import Intervals, by_message, distinct, distinct_rows, runs, walk
from tests import brute_force
from tests.conftest import present
from tests.graph.drawn import drawn_tables, problems
from tests.recorded import Cases, digest, recorded, summary


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (40, 1), (60, 4), (30, 9)])
def test_distinct_values_and_rows_are_those_of_numpy(shape: tuple[int, int]) -> None:
    """Random matrices with many equal rows, negative numbers among them."""
    rows = np.random.default_rng(1).integers(-1, 2, shape)
    assert np.array_equal(distinct(rows), np.unique(rows))
    assert np.array_equal(distinct_rows(rows), np.unique(rows, axis=0))


def test_runs_of_numbers_and_walks_that_end() -> None:
    """Two numbers from 5 on, none, and one from 0 on; of steps by 1 or 2 those that reach 4."""
    owner, number = runs(np.array([5, 9, 0]), np.array([2, 0, 1]))
    assert (owner.tolist(), number.tolist()) == ([0, 0, 2], [5, 6, 0])
    steps = present(
        walk(0, 3, lambda k, at: [(at + n, n) for n in (1, 2) if k < 2 or at + n == 4], 9)
    )
    assert [[move.what for move in stage] for stage in steps] == [[1, 2], [1, 2, 1], [2, 1]]
    assert walk(0, 3, lambda k, at: [(at + n, n) for n in (1, 2)], 8) is None


@recorded("problem")
def test_problems_are_the_recorded_ones() -> Cases:
    """What beside the latency is left of a stage, numbers of states, and whether lanes differ."""
    for name, problem in problems().items():
        stages = [(arcs.num_states, arcs.alike) for arcs in problem.stages]
        beside = [problem.left(k) for k in range(problem.num_stages)]
        sizes = problem.num_devices, problem.num_layers, problem.num_lanes
        yield name, [sizes, stages, digest(summary([beside, problem.work]))]


@recorded("intervals")
def test_room_is_the_recorded_one() -> Cases:
    """Of stages and messages; of devices with several chunks, and what these recompute."""
    for name, costs in drawn_tables().items():
        intervals, config = Intervals(costs), costs.config
        pairs = [(j, k) for j in range(len(config.nodes_used)) for k in range(config.pp)]
        fits = [int(intervals.fits(j, k, m).sum()) for j, k in pairs for m in (1, 3)]
        kinds = [
            {
                n: int(mask.sum())
                for n, mask in by_message(costs.message_kind, k, intervals.allowed).items()
            }
            for k in range(config.num_stages)
        ]
        room = summary([intervals.room, intervals.forward, intervals.backward, intervals.weight])
        chunks: list[object] = []
        for order in brute_force.all_orders(costs)[:3]:
            placement = Placer(costs).costs(order)
            classes = replica_classes(placement, config.dp)
            problem = fixed_order(intervals, placement, classes, [3] * len(classes))
            splits = np.array(list(brute_force.all_splits(costs)))
            chunks.append(int(problem.fits(splits).sum()))
            if problem.memory is not None:
                chunks.append(summary(problem.memory.backward(splits, 0)))
        yield name, [fits, [list(kind.items()) for kind in kinds], digest([room, chunks])]
