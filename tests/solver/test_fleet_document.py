"""What a fleet file says of itself."""

import pytest
from pydantic import ValidationError

from solver.fleet_document import FleetDocument, pipelines_of
from solver.fleets.fleet import next_fleet
from solver.fleets.recovery import Horizon
from tests.template_cases import seven_nodes


def test_nodes_by_number() -> None:
    """Every node once, in pipelines of its design; unknown ones are no nodes."""
    fleet = seven_nodes()
    pipelines = pipelines_of(fleet, fleet.pipelines)
    assert sorted(node for pipeline in pipelines for node in pipeline.nodes) == [*range(7)]
    unknown = fleet.pipelines[0].but(nodes=("b-0", "b-1"))
    with pytest.raises(KeyError):
        pipelines_of(fleet, [unknown])


def test_a_recovery_takes_its_pause_from_the_horizon() -> None:
    """An hour less the restart of 100 s and the copies; all of it where the pipelines go on."""
    fleet = seven_nodes()
    assert (fleet.micro_batches, fleet.nodes_left, fleet.training_s) == (12, (7,), 0)
    after = next_fleet(fleet, ["a-0"], [], Horizon(3600 * 10**9, 100 * 10**9))
    assert after.recovery is not None
    assert (after.nodes_left, after.goes_on) == ((6,), False)
    assert after.training_s == pytest.approx(3500 - after.recovery.transfer_s)
    same = after.but(recovery=after.recovery.but(before=after.pipelines))
    assert same.goes_on
    assert same.training_s == 3600


def test_bug_equal_pipelines_are_simulated_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of many long pipelines can be read as long as few of them are unlike."""
    fleet = seven_nodes()
    stages = [design.template.num_stages for design in fleet.designs]
    unlike = {(pipeline.design, pipeline.micro_batches) for pipeline in fleet.pipelines}
    passes = 2 * sum(stages[design] * m for design, m in unlike)
    assert len(unlike) < len(fleet.pipelines)
    text = fleet.model_dump_json()
    monkeypatch.setattr("formulations.instance.record.MOST_OPERATIONS", passes)
    assert FleetDocument.model_validate_json(text) == fleet
    monkeypatch.setattr("formulations.instance.record.MOST_OPERATIONS", passes - 1)
    with pytest.raises(ValidationError, match="too long to be simulated"):
        FleetDocument.model_validate_json(text)
