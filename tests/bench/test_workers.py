"""Task times dealt out to workers, by hand."""

import pytest

from bench.workers import dealt_s, estimated_s


def test_whoever_is_free_first_takes_the_next() -> None:
    """3 2 2 on two workers: the second is free at 2 and ends at 4; on three the longest ends."""
    assert [dealt_s([3, 2, 2], workers) for workers in (1, 2, 3)] == [7, 4, 3]


def test_rounds_wait_for_each_other() -> None:
    """10 s, of which 7 and 2 are two rounds: 1 s alone, then 4 and 1 on two workers."""
    rounds = {100: [3, 2, 2], None: [1, 1]}
    assert estimated_s(10, rounds, 2) == pytest.approx(1 + 4 + 1)
