"""What stages add to the latency of one lane: never more than the simulated step says."""

from random import Random

import numpy as np
import pytest

from bench.splits import chain_problem
from formulations.instance.search import ScheduleName
from solver.bounds.latency_bottleneck import latencies, terms
from solver.graph.cuts import evaluate
from solver.graph.edges import build_layers
from solver.graph.problem import SplitProblem


def random_stages(random: Random, schedule: ScheduleName) -> SplitProblem:
    """Up to 9 stages of one layer, up to 14 micro-batches, transfers from none to long."""
    p, m, scale = random.randint(1, 9), random.randint(1, 14), random.choice((0, 1, 6))
    ahead, behind = ([random.randint(1, 12) for _ in range(p)] for _ in range(2))
    down, up = ([scale * random.randint(0, 3) for _ in range(p - 1)] for _ in range(2))
    forward, backward = (np.repeat([own], p, axis=0).T for own in (ahead, behind))
    return chain_problem(schedule, m, forward, backward, down, up, bool(random.randint(0, 1)))


def step(problem: SplitProblem) -> int:
    p = problem.num_stages
    arcs, split = np.zeros((1, p), dtype=np.int64), np.arange(p + 1)[None]
    return int(evaluate(problem, arcs, split).step_time[0])


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", range(2))
def test_step_is_never_below_what_stages_add(seed: int, schedule: ScheduleName) -> None:
    """Latency and the most that a stage adds; sometimes no less either."""
    random, tight = Random(seed), 0
    for _ in range(100):
        problem = random_stages(random, schedule)
        layers = build_layers(problem, 1 << 40)
        added = max(int(stage[0]) for stage in terms(problem, layers, 0))
        bound = sum(int(stage[0]) for stage in latencies(layers, 0)) + added
        assert bound <= step(problem)
        tight += bound == step(problem)
    assert tight >= 8
