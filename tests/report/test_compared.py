"""Answers side by side: every figure of both, differences in one unit, gains as proved."""

from tests.report.shown import check_stored

test_answers_are_as_stored = check_stored("compared", "evaluated")
