"""The picture of a front, and its page: every cluster once, names where there is room."""

from solver.report.front import Figures
from solver.report.front_picture import Mark, front_picture
from tests.report.cases import front
from tests.report.shown import check_stored

test_fronts_are_drawn_as_stored = check_stored("front_picture", "front_page")


def test_others_are_drawn_beside_the_front() -> None:
    """Points of another source, with a name in the key."""
    at = Figures(1.0, 1.0)
    text = front_picture(front(), [Mark("other", at, "x", "theirs & more")], "theirs")
    assert ">theirs</text>" in text
    assert "<title>theirs &amp; more</title>" in text
