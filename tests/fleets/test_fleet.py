"""Fleet files: what recover writes can be verified, and changed ones are refused."""

import json
from pathlib import Path
from statistics import pvariance

import pytest

from solver.files import to_json
from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet, step_of_all_nodes_ns
from solver.fleets.recovery import Horizon, RecoveryError
from solver.report.fleet import fleet_text
from solver.verify import verify_fleet
from tests.command_line import output, printed, refused, run
from tests.random_fleets import even_designs, fleet_instance
from tests.resealed import resealed

HOUR = Horizon(3600 * 10**9)
DESIGNS = even_designs(range(2, 4))


@pytest.fixture(scope="module")
def fleet() -> FleetDocument:
    """Seven nodes, templates of two and three, one fault."""
    return start_fleet(fleet_instance(7), DESIGNS, 1)


@pytest.fixture
def fleet_file(fleet: FleetDocument, tmp_path: Path) -> Path:
    """The same as a file."""
    path = tmp_path / "fleet.json"
    path.write_text(to_json(fleet), encoding="utf-8")
    return path


def test_the_first_fleet_and_its_exchange_of_gradients(fleet: FleetDocument) -> None:
    """Seven nodes are 2 + 2 + 3. A node of a pair holds up to half of 4.2e8 parameters.

    Its second node: two blocks of 1e8 + 7 and a head of 1e7 + 7 parameters, 4 bytes each: 840 MB.
    Each of three pipelines sends 2 * 2/3 of that at 1 GB/s: 1.12 s.
    """
    assert sorted(len(one.nodes) for one in fleet.pipelines) == [2, 2, 3]
    assert (fleet.survives, fleet.goes_on, verify_fleet(fleet).problems) == (2, False, ())
    assert fleet.exchange_s == pytest.approx(4 * (2.1e8 + 21) * 4 / 3 / 1e9, rel=1e-9)
    slowest = max(one.step_time_s for one in fleet.pipelines)
    assert fleet.step_time_s == pytest.approx(slowest + fleet.exchange_s)
    assert step_of_all_nodes_ns(fleet) == round(fleet.step_time_s * 10**9)


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
    with pytest.raises(RecoveryError, match=words):
        start_fleet(fleet_instance(*nodes), even_designs(sizes), faults)


def test_micro_batches_by_variance(fleet: FleetDocument) -> None:
    """Pipelines are the same; steps vary no more, and the slowest is no faster."""
    even = start_fleet(fleet.instance, DESIGNS, 1, distribution="variance")
    assert [one.nodes for one in even.pipelines] == [one.nodes for one in fleet.pipelines]
    assert even.step_time_s >= fleet.step_time_s
    spreads = [pvariance([one.step_time_s for one in f.pipelines]) for f in (even, fleet)]
    assert spreads[0] <= spreads[1]
    assert verify_fleet(even).problems == ()


def test_a_fleet_that_goes_on_is_verified() -> None:
    """An idle node is lost: nothing starts again, so all of the horizon is trained in."""
    spare = start_fleet(fleet_instance(7), even_designs(range(3, 4)), 1)
    after = next_fleet(spare, spare.idle, [], Horizon(3600 * 10**9, 3000 * 10**9))
    assert after.goes_on
    assert after.recovery is not None
    assert after.recovery.steps == pytest.approx(3600 / after.step_time_s)
    assert "steps within 3,600 s, going on without a pause" in printed(*fleet_text(after))
    assert verify_fleet(after).problems == ()
    assert not next_fleet(spare, [spare.pipelines[0].nodes[0]], [], HOUR).goes_on


def test_bug_a_change_is_named_beside_the_digest(fleet: FleetDocument) -> None:
    """What was changed by hand is looked for although the digest tells that something was."""
    problems = verify_fleet(fleet.but(step_time_s=1.0)).problems
    assert [line.split(":")[0] for line in problems][:2] == ["digest", "step_time_s"]


def test_recover_goes_from_file_to_file(fleet_file: Path, tmp_path: Path) -> None:
    """Nothing is claimed of the designs; a node that is away is not lost again, but may join."""
    out = tmp_path / "next.json"
    output("recover", fleet_file, "--lost", "a-0,a-3", "--out", out)
    code, text, _ = run("verify", out)
    assert code == 5
    assert "not proved again: that no pipeline is faster, which is not claimed" in text
    assert "a-0 is lost already" in refused("recover", out, "--lost", "a-0")
    assert json.loads(output("recover", out, "--joined", "a-3", "--json"))["away"] == ["a-0"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--lost", "a-77"], 2, "unknown node 'a-77'"),
        (["--joined", "a-1"], 2, "a-1 is still there"),
        (["--lost", "a-1", "--joined", "a-1"], 2, "lost as well"),
        ([], 2, "--lost or --joined"),
        (["--lost", "a-1", "--horizon", "soon"], 2, "--horizon 'soon' is not a time"),
        (["--lost", "a-1", "--restart", "1h"], 2, "leaves nothing of --horizon 1h"),
        (["--lost", "a-0,a-1,a-2,a-3,a-4,a-5"], 3, "nodes: 1 left, which no template fits"),
        (["--lost", "a-1", "--instance", "instances/hetero_small.yaml"], 2, "a fleet of the"),
    ],
)
def test_bad_input_is_one_line(fleet_file: Path, options: list[str], code: int, words: str) -> None:
    assert words in refused("recover", fleet_file, *options, code=code)


def test_files_that_are_no_fleet_or_were_changed(fleet_file: Path) -> None:
    """A YAML file in place of the fleet: where it stops to be JSON, and what is asked for."""
    text = refused("recover", "instances/oobleck_gpt2.yaml", "--lost", "a40-0")
    assert "oobleck_gpt2.yaml:1:1: Expecting value; allowed: valid JSON: a fleet file" in text
    changed = fleet_file.read_text("utf-8").replace('"faults": 1', '"faults": 0')
    fleet_file.write_text(changed, "utf-8")
    assert "digest" in refused("recover", fleet_file, "--lost", "a-0")


def test_bug_what_other_fleets_may_train(fleet: FleetDocument) -> None:
    """A bound of twice the steps is a gap of a half, and allows not half as much more but twice."""
    after = next_fleet(fleet, [fleet.pipelines[0].nodes[0]], [], HOUR)
    text = printed(*fleet_text(after.but(recovery={"steps": 250.0, "steps_bound": 500.0})))
    assert "no fleet of these templates trains more than 500.0, gap 50.0 %" in text
    assert after.recovery is not None
    proved = resealed(after, {"recovery.steps_bound": after.recovery.steps})
    lines = [line.rstrip() for line in printed(*fleet_text(proved)).splitlines()]
    assert any(line.endswith("no fleet of these templates trains more") for line in lines)
