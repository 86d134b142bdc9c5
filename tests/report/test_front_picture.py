"""The picture of a front, and its page: every cluster once, names where there is room."""

from tests.report.shown import check_stored

test_fronts_are_drawn_as_stored = check_stored("front_picture", "front_page")
