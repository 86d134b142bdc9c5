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

NO_CUTOFF = 1 << 40


def _one_split(
    schedule: ScheduleName,
    m: int,
    forward: list[int],
    backward: list[int],
    sends: tuple[list[int], list[int]],
    blocking: bool = False,
) -> SplitProblem:
    """Stages of one layer each, with these times, wherever the layer stands."""
    p = len(forward)
    ahead, behind = (np.repeat(np.array(own)[:, None], p, axis=1) for own in (forward, backward))
    return chain_problem(schedule, m, ahead, behind, *sends, blocking)


def _bound(problem: SplitProblem) -> int:
    """Latency and the most that a stage adds, along the only split."""
    layers = build_layers(problem, NO_CUTOFF)
    added = max(int(own[0]) for own in terms(problem, layers, 0))
    return sum(int(own[0]) for own in latencies(layers, 0)) + added


def _step(problem: SplitProblem) -> int:
    p = problem.num_stages
    arcs, split = np.zeros((1, p), dtype=np.int64), np.arange(p + 1)[None]
    return int(evaluate(problem, arcs, split).step_time[0])


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", range(8))
def test_step_is_never_below_what_stages_add(seed: int, schedule: ScheduleName) -> None:
    """Up to 9 stages and 14 micro-batches; transfers from none to long, also blocking."""
    random, tight = Random(seed), 0
    for _ in range(60):
        p, m, scale = random.randint(1, 9), random.randint(1, 14), random.choice((0, 1, 6))
        forward, backward = ([random.randint(1, 12) for _ in range(p)] for _ in range(2))
        ahead, back = ([scale * random.randint(0, 3) for _ in range(p - 1)] for _ in range(2))
        blocking = bool(random.randint(0, 1))
        problem = _one_split(schedule, m, forward, backward, (ahead, back), blocking)
        bound, step = _bound(problem), _step(problem)
        assert bound <= step
        tight += bound == step
    assert tight >= 5


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", range(4))
def test_empty_stages_at_the_front_change_no_step(seed: int, schedule: ScheduleName) -> None:
    """Up to 5 of no time before up to 6 others: shorter pipelines belong to the same problem."""
    random = Random(seed)
    for _ in range(30):
        p, m, empty = random.randint(1, 6), random.randint(1, 12), random.randint(1, 5)
        times = [[random.randint(1, 12) for _ in range(p)] for _ in range(2)]
        sends = [[random.randint(0, 6) for _ in range(p - 1)] for _ in range(2)]
        blocking = bool(random.randint(0, 1))
        none = [0] * empty
        longer = _one_split(
            schedule,
            m,
            none + times[0],
            none + times[1],
            (none + sends[0], none + sends[1]),
            blocking,
        )
        short = _one_split(schedule, m, times[0], times[1], (sends[0], sends[1]), blocking)
        assert _step(longer) == _step(short)
