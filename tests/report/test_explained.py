"""A plan and its changes, in a table."""

from tests.report.shown import check_stored

test_changes_are_as_stored = check_stored("explained")
