"""Fronts in words: points, where all clusters stand, what the nodes of a subset bring."""

from tests.report.shown import check_stored

test_fronts_are_as_stored = check_stored("front", "subsets")
