"""What stages add to the latency of one lane: never more than the simulated step says."""

from random import Random

import numpy as np
import pytest

from formulations.instance.search import ScheduleName
from solver.bounds.frontier import Head, frontier, no_stages
from solver.bounds.latency_bottleneck import latencies, terms
from solver.layered.cuts import evaluate
from solver.layered.edges import build_layers
from solver.layered.problem import Array, SplitProblem, chain_problem

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
    """Latency and the most that is added, along the split; no more than the frontier's bound."""
    layers = build_layers(problem, NO_CUTOFF)
    front = frontier(problem, layers, 0, NO_CUTOFF)
    costs, added = latencies(layers, 0), terms(problem, layers, 0)
    head, edge = no_stages(), np.zeros(1, dtype=np.int64)
    for k, edges in enumerate(layers):
        assert len(edges) == 1
        head = head.extended(problem, k, 0, edges, edge, costs[k], added[k])
        assert front.bound(k + 1, edges.target, head)[0] >= _whole(head, costs[k + 1 :])
    return int(head.latency[0] + head.term[0])


def _whole(head: Head, rest: list[Array]) -> int:
    """Latency of all stages and what those so far add."""
    return int(head.latency[0] + head.term[0] + sum(int(cost[0]) for cost in rest))


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
    assert tight >= 10


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        # Latency 20. Stage 1, one stage after it: 2 pairs of 7, then a backward of 6 at stage 0.
        # Alone stage 0 adds 1 x 7 + 2 x 6 = 19, stage 1 2 x 7 + 5 = 19, stage 2 3 x 6 = 18.
        ([1, 5, 5], [6, 2, 1], 20 + 2 * 7 + 6),
        # Latency 22. Stage 1 has 2 pairs of 8; after them stage 2 once more: 16 + 7 = 23.
        # Alone stage 0 adds 7 + 2 x 6 = 19, stage 1 2 x 8 + 6 = 22, stage 2 3 x 7 = 21.
        ([1, 2, 1], [6, 6, 6], 22 + 2 * 8 + 7),
    ],
)
def test_stages_that_add_more_together_than_alone(
    forward: list[int], backward: list[int], expected: int
) -> None:
    """Three stages, 4 micro-batches, no transfers: the bound is the step."""
    problem = _one_split("1f1b", 4, forward, backward, ([0, 0], [0, 0]))
    assert _bound(problem) == expected
    assert _step(problem) == expected


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
