"""A fleet in words: its pipelines, where they came from, what was copied, what is idle."""

import pytest

from solver.report.fleet import fleet_text, pipeline_changes
from tests.command_line import printed
from tests.report.cases import fleets
from tests.report.shown import drawn, stored


@pytest.mark.parametrize("n", range(3))
def test_fleets_in_words(n: int) -> None:
    """Pipelines, copies, what the fleet survives: at the start, without a node, with it again."""
    fleet = fleets()[n]
    assert drawn(*fleet_text(fleet, 2 * fleet.step_time_s)) == stored(f"fleet_{n}")


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


def test_idle_nodes_have_a_reason() -> None:
    """Longer steps with all of them, or no fleet of all."""
    fleet = fleets()[0]
    idle = fleet.but(idle=("a-0",))
    longer = printed(*fleet_text(idle, 2 * fleet.step_time_s))
    assert "a-0: with all nodes in use a step takes" in longer
    assert "100.0 % longer" in longer
    assert "50.0 % less, but within the horizon it trains no more" in printed(
        *fleet_text(idle, fleet.step_time_s / 2)
    )
    assert "a-0: no fleet uses all nodes" in printed(*fleet_text(idle))
