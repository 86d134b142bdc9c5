"""Replays side by side, in words, as data and as a picture."""

from tests.report.shown import check_stored

test_replays_are_as_stored = check_stored("replay", "replay_picture")
