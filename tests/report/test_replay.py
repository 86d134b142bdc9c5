"""Replays in words and as a picture keep the samples and the time."""

import pytest

from solver.report.replay import averages
from tests.report.shown import check_stored, replays


def test_averages_keep_the_samples() -> None:
    """In parts of 2.5 s; of a run of 20 s the second half has nothing yet."""
    # 5 samples/s, then 1.5 s of 5; then 1.5 s of 2.5; then 2.5
    expected = [5, 7.5 / 2.5, 3.75 / 2.5, 2.5]
    run = replays()["ours"]
    assert averages(run, 4) == pytest.approx(expected)
    assert averages(run, 4, 20 * 10**9) == pytest.approx([4, 2, 0, 0])


test_curves_of_two_policies_are_as_stored = check_stored("replay_picture")
