"""Fleet files: the first fleet and those after it are verified."""

import pytest

from formulations.errors import NoPlanError
from solver.fleets.fleet import next_fleet, start_fleet, step_of_all_nodes_ns
from solver.fleets.recovery import Horizon
from solver.report.fleet import fleet_text
from solver.verify import verify_fleet
from tests.command_line import printed
from tests.conftest import present
from tests.recorded import Cases, recorded
from tests.refusals import refusal
from tests.template_cases import HOUR, after_a_loss, even_designs, fleet_instance, seven_nodes
from tests.verify.forgeries import resealed


@pytest.mark.parametrize(
    ("nodes", "sizes", "faults", "words"),
    [
        ((7, 0), range(2, 4), 3, r"4 pipelines take 2 nodes .* at most 2 faults"),
        ((4, 3), range(5, 6), 0, "allowed: other sizes"),
    ],
)
def test_pipelines_that_do_not_fit(
    nodes: tuple[int, int], sizes: range, faults: int, words: str
) -> None:
    """Four of two nodes on seven; one of five, where four are of one group and three of another."""
    with pytest.raises(NoPlanError, match=words):
        start_fleet(fleet_instance(*nodes), even_designs(sizes), faults)


def test_a_fleet_that_goes_on_is_verified() -> None:
    """An idle node is lost: nothing starts again, so all of the horizon is trained in."""
    spare = start_fleet(fleet_instance(7), even_designs(range(3, 4)), 1)
    after = next_fleet(spare, spare.idle, [], Horizon(3600 * 10**9, 3000 * 10**9))
    assert after.goes_on
    assert present(after.recovery).steps == pytest.approx(3600 / after.step_time_s)
    assert "steps within 3,600 s, going on without a pause" in printed(*fleet_text(after))
    assert verify_fleet(after).problems == ()


@recorded("fleet")
def test_fleets_are_the_recorded_ones() -> Cases:
    for nodes, sizes in ((7, range(2, 4)), (7, range(3, 4)), (5, range(1, 3))):
        fleet = start_fleet(fleet_instance(nodes), even_designs(sizes), 1)
        even = start_fleet(fleet.instance, fleet.designs, 1, distribution="variance")
        assert verify_fleet(fleet).problems == verify_fleet(even).problems == ()
        yield f"{nodes} {sizes} even", [p.micro_batches for p in even.pipelines]
        lost = [fleet.pipelines[0].nodes[0], "a-3"]
        after = next_fleet(fleet, lost, [], HOUR)
        for n, one in enumerate((fleet, after, next_fleet(after, [], lost[:1], HOUR))):
            seats = [[p.design, *p.nodes, p.micro_batches, p.step_time_s] for p in one.pipelines]
            rest = [one.exchange_s, one.throughput_sequences_per_s, one.idle, one.away]
            past = one.recovery
            moved = past and [past.steps, past.steps_bound, past.transfer_s, len(past.copies)]
            yield f"{nodes} {sizes} {n}", [*seats, *rest, moved, step_of_all_nodes_ns(one)]
    for nodes in (8, 9):
        fleet = start_fleet(fleet_instance(nodes), seven_nodes().designs, 1)
        yield f"unknown of {nodes}", refusal(lambda: next_fleet(fleet, ["b"], [], HOUR))  # noqa: B023


def test_bug_a_change_is_named_beside_the_digest() -> None:
    """What was changed by hand is looked for although the digest tells that something was."""
    problems = verify_fleet(seven_nodes().but(step_time_s=1.0)).problems
    assert [line.split(":")[0] for line in problems][:2] == ["digest", "step_time_s"]


def test_bug_what_other_fleets_may_train() -> None:
    """A bound of twice the steps is a gap of a half, and allows not half as much more but twice."""
    after = after_a_loss()
    assert not after.goes_on
    text = printed(*fleet_text(after.but(recovery={"steps": 250.0, "steps_bound": 500.0})))
    assert "no fleet of these templates trains more than 500.0, gap 50.0 %" in text
    proved = resealed(after, {"recovery.steps_bound": present(after.recovery).steps})
    lines = [line.rstrip() for line in printed(*fleet_text(proved)).splitlines()]
    assert any(line.endswith("no fleet of these templates trains more") for line in lines)
