"""Ticks are round; places are those of stored pictures."""

import pytest

from solver.report.chart import round_ticks
from tests.report.shown import check_stored

test_pictures_are_as_stored = check_stored("front_picture", "replay_picture")


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(1.0, [0, 0.1, 1.0]), (9.9, [0, 1, 10]), (21, [0, 5, 25]), (0.034, [0, 0.005, 0.035])],
)
def test_ticks_are_round_and_reach_the_most(most: float, ticks: list[float]) -> None:
    found = round_ticks(most)
    assert [found[0], found[1], found[-1]] == pytest.approx(ticks)
