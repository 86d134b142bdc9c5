"""A fleet in words: its pipelines, where they came from, what was copied, what is idle."""

from solver.report.fleet import pipeline_changes
from tests.report.cases import fleets
from tests.report.shown import check_stored

test_fleets_are_as_stored = check_stored("fleet_0", "fleet_1", "fleet_2")


def test_changes_say_where_pipelines_came_from() -> None:
    """A node of pipeline 0 is lost: it borrows one of 2; back again, the node stays idle."""
    first, after, again = fleets()
    assert pipeline_changes(first) == [""] * 3
    borrowed = "0, re-instantiated, 1 node borrowed from 2"
    assert pipeline_changes(after) == ["1, kept", borrowed, "2, re-instantiated"]
    assert pipeline_changes(again) == ["0, kept", "1, kept", "2, kept"]
    # As if there had been no pipeline 0
    assert after.recovery is not None
    fewer = after.recovery.but(before=after.recovery.before[1:])
    joined = "1, re-instantiated, 1 node that joined or was idle"
    assert pipeline_changes(after.but(recovery=fewer)) == ["0, kept", joined, "1, re-instantiated"]
