"""Batch distribution: both objectives equal brute force."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.fleets.distribution import BatchError, least_variance, shortest


def spread(steps: Sequence[int]) -> int:
    """Variance times the square of the number of steps."""
    return len(steps) * sum(step**2 for step in steps) - sum(steps) ** 2


METHODS = ((shortest, max), (least_variance, spread))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Up to four pipelines with nondecreasing steps, and a feasible total."""
    steps = st.lists(st.integers(0, 40), min_size=1, max_size=6).map(sorted)
    times = draw(st.lists(steps, min_size=1, max_size=4))
    return times, draw(st.integers(len(times), sum(map(len, times))))


@pytest.mark.parametrize(("method", "objective"), METHODS)
@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_no_shares_are_better(
    method: Callable[[Sequence[Sequence[int]], int], tuple[int, ...]],
    objective: Callable[[Sequence[int]], int],
    problem: tuple[list[list[int]], int],
) -> None:
    """Of all ways to share the micro-batches, 1 <= m_r <= most_r."""
    times, total = problem
    every = {
        shares: objective([steps[m - 1] for steps, m in zip(times, shares, strict=True)])
        for shares in product(*(range(1, len(steps) + 1) for steps in times))
        if sum(shares) == total
    }
    assert every[method(times, total)] == min(every.values())


def test_many_micro_batches() -> None:
    """Speeds 1, 2 and 3 with 6000: 1000, 2000 and 3000 end together."""
    times = [[each * m for m in range(1, 6001)] for each in (6, 3, 2)]
    assert shortest(times, 6000) == least_variance(times, 6000) == (1000, 2000, 3000)


def test_too_few_or_too_many_micro_batches() -> None:
    for (method, _), total in product(METHODS, (1, 5)):
        with pytest.raises(BatchError, match="allowed: 2 to 4"):
            method([[1, 2], [1, 2]], total)
