"""Batch distribution: both objectives equal brute force."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.fleets.distribution import BatchError, least_variance, shortest


def ways(most: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to share `total`, 1 <= m_r <= most_r."""
    if not most:
        if not total:
            yield ()
        return
    for m in range(1, min(most[0], total) + 1):
        for rest in ways(most[1:], total - m):
            yield (m, *rest)


def steps_of(times: Sequence[Sequence[int]], shares: Sequence[int]) -> list[int]:
    """Step of every pipeline."""
    return [own[m - 1] for own, m in zip(times, shares, strict=True)]


def spread(steps: Sequence[int]) -> int:
    """Variance times the square of the number of steps."""
    return len(steps) * sum(step**2 for step in steps) - sum(steps) ** 2


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Up to four pipelines with nondecreasing steps, and a feasible total."""
    times = draw(
        st.lists(
            st.lists(st.integers(0, 40), min_size=1, max_size=6).map(sorted),
            min_size=1,
            max_size=4,
        )
    )
    total = draw(st.integers(len(times), sum(map(len, times))))
    return times, total


@settings(max_examples=60, deadline=None)
@given(problems())
def test_shortest_is_as_short_as_any(problem: tuple[list[list[int]], int]) -> None:
    """No way to share the micro-batches has a shorter longest step."""
    times, total = problem
    shares = shortest(times, total)
    every = list(ways([len(own) for own in times], total))
    assert shares in every
    assert max(steps_of(times, shares)) == min(max(steps_of(times, way)) for way in every)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_least_variance_is_as_even_as_any(problem: tuple[list[list[int]], int]) -> None:
    """No way to share the micro-batches has steps of less variance."""
    times, total = problem
    shares = least_variance(times, total)
    every = list(ways([len(own) for own in times], total))
    assert shares in every
    assert spread(steps_of(times, shares)) == min(spread(steps_of(times, way)) for way in every)


def test_the_objectives_differ() -> None:
    """Steps (1, 9) and (8, 8), three micro-batches: 1 and 8 is shorter, 9 and 8 more even."""
    times = [[1, 9], [8, 8]]
    assert shortest(times, 3) == (1, 2)
    assert least_variance(times, 3) == (2, 1)


def test_many_micro_batches() -> None:
    """Speeds 1, 2 and 3 with 6000: 1000, 2000 and 3000 end together."""
    times = [[6 * m for m in range(1, 6001)], [3 * m for m in range(1, 6001)]]
    times.append([2 * m for m in range(1, 6001)])
    assert shortest(times, 6000) == (1000, 2000, 3000)
    assert least_variance(times, 6000) == (1000, 2000, 3000)


@pytest.mark.parametrize("total", [1, 5])
def test_too_few_or_too_many_micro_batches(total: int) -> None:
    """Two pipelines with up to two each take 2 to 4."""
    for method in (shortest, least_variance):
        with pytest.raises(BatchError, match="allowed: 2 to 4"):
            method([[1, 2], [1, 2]], total)
