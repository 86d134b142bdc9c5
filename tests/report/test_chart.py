"""Axes keep differences, ticks are round, steps keep their height."""

import math
from xml.etree import ElementTree

import pytest

from solver.report.chart import Axis, Chart, key, picture, round_ticks, written


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(1.0, [0, 0.1, 1.0]), (9.9, [0, 1, 10]), (21, [0, 5, 25]), (0.034, [0, 0.005, 0.035])],
)
def test_ticks_are_round_and_reach_the_most(most: float, ticks: list[float]) -> None:
    """First, distance and last."""
    found = round_ticks(most)
    assert [found[0], found[1], found[-1]] == pytest.approx(ticks)


def test_places_of_values() -> None:
    """10 lies halfway between 1 and 100 on a logarithmic axis; values beyond stand at the end."""
    chart = Chart(Axis(1, 100, scale=math.log), Axis(0, 4), left=10, top=20, width=200, height=100)
    assert [chart.x(value) for value in (0.5, 1, 10, 100, 1000)] == pytest.approx(
        [10, 10, 110, 210, 210]
    )
    assert [chart.y(value) for value in (0, 1, 4)] == [120, 95, 20]
    assert chart.steps([(1, 0), (10, 4)], 100, "class=s") == (
        '<path class=s d="M10.0 120.0H110.0V20.0H210.0"/>'
    )
    assert chart.dot((10, 1), 3, "class=d", "a < b") == (
        '<circle cx="110.0" cy="95.0" r="3" class=d><title>a &lt; b</title></circle>'
    )


def test_a_picture_is_one_file() -> None:
    """Grid, names and key on white below the title, as XML that can be read."""
    chart = Chart(Axis(0, 2, [(0, "0"), (2, "2 s")]), Axis(0, 1, [(1, "1 B")]), 10, 20, 100, 50)
    parts = [*chart.grid(), *chart.names("time", "size"), *key(5, 6, "a & b", "#fff")]
    root = ElementTree.fromstring(picture("x < y", 200, 100, [*parts, written(1, 2, "w")], of="p"))
    assert root.get("viewBox") == "0 0 200 100"
    assert root.get("class") == "p"
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts == ["x < y", "0", "2 s", "1 B", "time", "size", "a & b", "w"]
