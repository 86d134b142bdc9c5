"""A fleet in words: its pipelines, where they came from, what was copied, what is idle."""

from tests.report.shown import check_stored

test_fleets_are_as_stored = check_stored("fleet_0", "fleet_1", "fleet_2", "fleet_3")


test_replays_are_as_stored = check_stored("replay", "replay_picture")
