"""Batch distribution: both objectives equal brute force."""

import random
from collections.abc import Callable, Sequence
from itertools import product
from unittest.mock import MagicMock

import pytest

from formulations.errors import NoPlanError
from solver.fleets import distribution
from solver.fleets.distribution import least_variance, shortest
from tests.recorded import as_recorded


def spread(steps: Sequence[int]) -> int:
    """Variance times the square of the number of steps."""
    return len(steps) * sum(step**2 for step in steps) - sum(steps) ** 2


METHODS = ((shortest, max), (least_variance, spread))


def problem(seed: int) -> tuple[list[list[int]], int]:
    """Four pipelines of few micro-batches, or up to three of many; a feasible total."""
    rng = random.Random(seed)
    number, longest = (4, 6) if seed % 3 == 0 else (rng.randint(1, 3), 15)
    ends = [[rng.randrange(10 ** (1 + seed % 4)) for _ in range(longest)] for _ in range(number)]
    times = [sorted(each[: rng.randint(1, longest)]) for each in ends]
    return times, rng.randint(number, sum(map(len, times)))


@pytest.mark.parametrize(("method", "objective"), METHODS)
def test_no_shares_are_better(
    method: Callable[[Sequence[Sequence[int]], int], tuple[int, ...]],
    objective: Callable[[Sequence[int]], int],
) -> None:
    """Of all ways to share the micro-batches, of which each pipeline gets one at least."""
    for seed in range(600):
        times, total = problem(seed)
        every = {
            shares: objective([steps[m - 1] for steps, m in zip(times, shares, strict=True)])
            for shares in product(*(range(1, len(steps) + 1) for steps in times))
            if sum(shares) == total
        }
        assert every[method(times, total)] == min(every.values()), seed


def test_many_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds 1, 2 and 3 with 6000: 1000, 2000 and 3000 end together.

    Of drawn problems bounds leave so few centers to be looked at.
    """
    closest = MagicMock(side_effect=distribution._closest)
    monkeypatch.setattr(distribution, "_closest", closest)
    for seed in range(100):
        least_variance(*problem(seed))
    as_recorded("distribution", {"centers": closest.call_count})
    times = [[each * m for m in range(1, 6001)] for each in (6, 3, 2)]
    assert shortest(times, 6000) == least_variance(times, 6000) == (1000, 2000, 3000)


def test_too_few_or_too_many_micro_batches() -> None:
    for (method, _), total in product(METHODS, (1, 5)):
        with pytest.raises(NoPlanError, match="allowed: 2 to 4"):
            method([[1, 2], [1, 2]], total)
