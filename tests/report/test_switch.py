"""Switches in words, as a page and as a picture: volumes, times beside the published rule."""

from tests.report.shown import check_stored

test_switches_are_as_stored = check_stored("switch", "switch_page")
