"""The enumeration engine: exact on chains and on all node orders at once, honest when stopped."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest

from bench.splits import chain_problem
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.enumeration import engine
from solver.enumeration.engine import SplitOutcome, solve_split
from solver.graph.problem import SplitProblem
from tests import recursion
from tests.random_configs import crowded_instance, random_config, scheduled
from tests.seeds import one_each
from tests.small_instances import random_instance

NO_CUTOFF = 1 << 50


def random_chain(seed: int) -> SplitProblem:
    """Up to 9 layers on up to 5 stages, transfers unlike in the two directions."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 6))
    layers = int(rng.integers(p, 10))
    schedule: ScheduleName = "gpipe" if seed % 3 == 0 else "1f1b"
    return chain_problem(
        schedule,
        int(rng.integers(1, 9)),
        rng.integers(1, 40, (p, layers)),
        rng.integers(1, 80, (p, layers)),
        rng.integers(0, 40, p - 1).tolist(),
        rng.integers(0, 40, p - 1).tolist(),
        blocking=seed % 4 == 0,
    )


def chain_time(problem: SplitProblem, split: tuple[int, ...]) -> int:
    """Step time of one split of a chain, by the witness."""
    stages = list(enumerate(pairwise(split)))
    ends = recursion.stage_ends(
        problem.schedule,
        problem.micro_batches[0],
        [int(problem.forward[k, a, b]) for k, (a, b) in stages],
        [int(problem.backward[k, a, b]) for k, (a, b) in stages],
        [int(stage.send[0, 0]) for stage in problem.stages[1:]],
        problem.blocking,
        [int(stage.send_back[0, 0]) for stage in problem.stages[1:]],
    )
    return max(ends)


def chain_splits(problem: SplitProblem) -> Iterator[tuple[int, ...]]:
    layers = problem.num_layers
    for inner in combinations(range(1, layers), problem.num_stages - 1):
        yield (0, *inner, layers)


def chain_optimum(problem: SplitProblem) -> int:
    return min(chain_time(problem, split) for split in chain_splits(problem))


@pytest.mark.parametrize("seed", one_each(range(48), 6))
def test_chain_equals_brute_force(seed: int) -> None:
    """Both schedules, blocking or not, transfers unlike in both directions: the exact optimum.

    With the optimum as cutoff there is no split; one nanosecond more, and there is.
    """
    problem = random_chain(seed)
    best = chain_optimum(problem)
    found = solve_split(problem, NO_CUTOFF)
    assert (found.step_time_ns, found.bound_ns, found.complete) == (best, best, True)
    assert solve_split(problem, best) == SplitOutcome(None, None, None, best, True)
    assert solve_split(problem, best + 1).step_time_ns == best


def even_tables(seed: int, schedule: ScheduleName | None = None) -> CostTables | None:
    """A random configuration with even shares on nodes of two types and sizes, if there is one."""
    instance = crowded_instance(seed) if seed % 2 else random_instance(seed)
    search = instance.search.but(micro_batches="even")
    groups = instance.cluster.groups
    if seed % 2:
        groups = tuple(group.but(nodes=2) for group in groups)
    instance = instance.but(search=search, cluster={"groups": groups})
    instance = instance if schedule is None else scheduled(instance, schedule, seed)
    config = random_config(instance, seed, most_stages=4)
    return build_tables(instance, config) if config else None


@pytest.mark.parametrize("gap", [0.01, 0.1])
def test_gap_is_kept(gap: float) -> None:
    for seed in range(12):
        problem = random_chain(seed)
        best, found = chain_optimum(problem), solve_split(problem, NO_CUTOFF, gap)
        assert found.step_time_ns is not None
        assert found.step_time_ns * (1 - gap) <= found.bound_ns <= best <= found.step_time_ns


def test_stopped_early_the_bound_still_holds() -> None:
    """However soon the search is stopped, no split is faster than the bound it returns.

    Before the first prefix is extended, cuts and latency plus terms bound all splits.
    """
    for seed in range(30):
        problem, asks = random_chain(seed), iter(range(seed % 5))

        def stop(asks: Iterator[int] = asks) -> bool:
            return next(asks, None) is None

        best, found = chain_optimum(problem), solve_split(problem, NO_CUTOFF, 0.0, stop)
        assert 0.8 * best <= found.bound_ns <= best
        assert found.step_time_ns is None or found.step_time_ns >= best


def test_bug_what_windows_have_proved_is_not_enumerated() -> None:
    """Where an earlier bound is within the gap of the best split, nothing is left to look at."""
    search = engine._Search(random_chain(10), NO_CUTOFF, 0.0)
    search.descend(lambda: False)
    assert search.layers is not None
    search.bound = search.target
    assert search.enumerate(lambda: True)
