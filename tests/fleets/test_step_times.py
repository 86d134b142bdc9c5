"""Step of one pipeline for all numbers of micro-batches: the simulator says the same of each."""

import random
from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.template_costs import TemplateCosts
from formulations.instance.search import ScheduleName
from solver.fleets.step_times import step_times_ns
from solver.simulate import Array, pipeline_step_ns


def random_costs(rng: random.Random, schedule: ScheduleName = "1f1b") -> TemplateCosts:
    """Costs of up to six stages with room for 1000 micro-batches."""
    p = rng.randint(1, 6)

    def draw(count: int, most: int) -> Array:
        return np.array([rng.randint(0, most) for _ in range(count)], dtype=np.int64)

    return TemplateCosts(
        schedule=schedule,
        blocking_sends=rng.random() < 0.3,
        forward_ns=draw(p, 50),
        backward_ns=draw(p, 50),
        send_ns=draw(p - 1, 30),
        send_back_ns=draw(p - 1, 30),
        optimizer_ns=draw(p, 20),
        embedding_ns=max(0, rng.randint(-40, 40)),
        memory_bytes=np.zeros(p, dtype=np.int64),
        activation_bytes=np.ones(p, dtype=np.int64),
        limit_bytes=np.full(p, 1000),
    )


@pytest.mark.parametrize(
    ("schedule", "number", "looked_at"),
    [("1f1b", 50, range(1, 21)), ("gpipe", 10, range(1, 21)), ("1f1b", 20, (37, 150, 299, 300))],
)
def test_numbers_equal_the_simulator(schedule: ScheduleName, number: int, looked_at: range) -> None:
    """Also long after rounds have begun to repeat, with periods of one and of several."""
    rng = random.Random(3)
    for _ in range(number):
        costs = random_costs(rng, schedule)
        times = step_times_ns(costs, looked_at[-1])
        assert [times[m - 1] for m in looked_at] == [pipeline_step_ns(costs, m) for m in looked_at]


def test_times_end_where_memory_does() -> None:
    """GPipe holds all micro-batches: of 20 with one byte each 5 fit into 5 bytes."""
    costs = random_costs(random.Random(1), "gpipe")
    for limit_bytes, number in ((5, 5), (0, 0)):
        limits = np.full(costs.num_stages, limit_bytes)
        assert len(step_times_ns(replace(costs, limit_bytes=limits), 20)) == number
