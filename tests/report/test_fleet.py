"""A fleet in words: its pipelines, where they came from, what was copied, what is idle."""

from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.report.fleet import fleet_text, pipeline_changes
from tests.command_line import printed
from tests.random_fleets import even_designs, fleet_instance

HOUR = Horizon(3600 * 10**9)


def started() -> FleetDocument:
    """Seven nodes, templates of two and three, one fault."""
    return start_fleet(fleet_instance(7), even_designs(range(2, 4)), 1)


def test_pipelines_are_rows() -> None:
    """Nodes, stages and micro-batches; the step and what the fleet survives."""
    fleet = started()
    text = printed(*fleet_text(fleet))
    for n, pipeline in enumerate(fleet.pipelines):
        assert f"{n}         {', '.join(pipeline.nodes)}" in text
    assert "survives      any 2 failures: 3 pipelines with all layers each" in text
    assert pipeline_changes(fleet) == [""] * 3


def test_changes_say_where_pipelines_came_from() -> None:
    """A node of pipeline 0 is lost: it borrows one of 2; back again, the node stays idle."""
    fleet = started()
    lost = fleet.pipelines[0].nodes[0]
    after = next_fleet(fleet, [lost], [], HOUR)
    borrowed = "0, re-instantiated, 1 node borrowed from 2"
    assert pipeline_changes(after) == ["1, kept", borrowed, "2, re-instantiated"]
    text = " ".join(printed(*fleet_text(after)).split())
    assert f"lost {lost} joined nothing" in text
    assert "receives layers" in text
    assert "no fleet of these templates trains more" in text
    again = next_fleet(after, [], [lost], HOUR)
    assert pipeline_changes(again) == ["0, kept", "1, kept", "2, kept"]
    assert "nothing has to be copied" in " ".join(printed(*fleet_text(again)).split())
    # As if there had been no pipeline 0
    assert after.recovery is not None
    fewer = after.recovery.but(before=after.recovery.before[1:])
    joined = "1, re-instantiated, 1 node that joined or was idle"
    assert pipeline_changes(after.but(recovery=fewer)) == ["0, kept", joined, "1, re-instantiated"]


def test_idle_nodes_have_a_reason() -> None:
    """Longer steps with all of them, or no fleet of all."""
    fleet = started()
    idle = fleet.but(idle=("a-0",))
    longer = printed(*fleet_text(idle, 2 * fleet.step_time_s))
    assert "a-0: with all nodes in use a step takes" in longer
    assert "100.0 % longer" in longer
    assert "50.0 % less, but within the horizon it trains no more" in printed(
        *fleet_text(idle, fleet.step_time_s / 2)
    )
    assert "a-0: no fleet uses all nodes" in printed(*fleet_text(idle))
