"""A step of mixed lengths in words, and as a page with its picture."""

from tests.report.shown import as_stored


def test_steps_of_lengths_are_as_they_are_stored() -> None:
    """Groups, switches and what ends them, beside the best single strategy."""
    made, stored = as_stored("lengths")
    assert made == stored
