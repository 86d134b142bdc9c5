"""A step of mixed lengths in words, and as a page with its picture."""

from tests.report.shown import check_stored

test_steps_are_as_stored = check_stored("lengths")


test_switches_are_as_stored = check_stored("switch", "switch_page")
