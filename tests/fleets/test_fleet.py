"""Fleet files: what recover writes can be verified, and changed ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import pvariance
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.files import digest, to_json
from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon, RecoveryError
from solver.report.fleet import fleet_text, pipeline_changes
from solver.verify import verify_fleet
from tests.command_line import output, printed, refused, run
from tests.random_fleets import even_designs, fleet_instance
from tests.resealed import change

HOUR = Horizon(3600 * 10**9)


@pytest.fixture(scope="module")
def fleet() -> FleetDocument:
    """Seven nodes, templates of two and three, one fault."""
    return start_fleet(fleet_instance(7), even_designs(range(2, 4)), 1)


@pytest.fixture
def fleet_file(fleet: FleetDocument, tmp_path: Path) -> Path:
    """The same as a file."""
    path = tmp_path / "fleet.json"
    path.write_text(to_json(fleet), encoding="utf-8")
    return path


def test_the_first_fleet_is_verified(fleet: FleetDocument) -> None:
    """Seven nodes are 2 + 2 + 3, and every figure holds."""
    assert sorted(len(one.nodes) for one in fleet.pipelines) == [2, 2, 3]
    assert fleet.survives == 2
    assert verify_fleet(fleet).problems == ()


def test_the_exchange_of_gradients_counts(fleet: FleetDocument) -> None:
    """A node of a pair holds up to half of 4.2e8 parameters, 4 bytes each, on a link of 1 GB/s.

    The second node of a pair: two blocks of 1e8 + 7 and a head of 1e7 + 7 parameters, 840 MB. Each
    of three pipelines sends 2 * 2/3 of that: 1.12 s.
    """
    assert fleet.exchange_s == pytest.approx(4 * (2.1e8 + 21) * 4 / 3 / 1e9, rel=1e-9)
    slowest = max(one.step_time_s for one in fleet.pipelines)
    assert fleet.step_time_s == pytest.approx(slowest + fleet.exchange_s)


def test_too_many_faults_for_the_nodes() -> None:
    """Four pipelines of two need eight nodes."""
    with pytest.raises(RecoveryError, match=r"4 pipelines take 2 nodes .* at most 2 faults"):
        start_fleet(fleet_instance(7), even_designs(range(2, 4)), 3)


def test_micro_batches_by_variance() -> None:
    """Pipelines are the same; steps vary no more, and the slowest is no faster."""
    instance, designs = fleet_instance(7), even_designs(range(2, 4))
    fast = start_fleet(instance, designs, 1)
    even = start_fleet(instance, designs, 1, distribution="variance")
    assert [one.nodes for one in even.pipelines] == [one.nodes for one in fast.pipelines]
    assert even.step_time_s >= fast.step_time_s
    spreads = [pvariance([one.step_time_s for one in f.pipelines]) for f in (even, fast)]
    assert spreads[0] <= spreads[1]
    assert verify_fleet(even).problems == ()


def test_sizes_that_do_not_add_up() -> None:
    """Pipelines of five nodes of one group, which has four; three are of another."""
    with pytest.raises(RecoveryError, match="allowed: other sizes"):
        start_fleet(fleet_instance(4, others=3), even_designs(range(5, 6)), 0)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_every_recovery_is_verified(data: st.DataObject) -> None:
    """Nodes leave and come back one or two at a time; every file on the way holds."""
    document = start_fleet(fleet_instance(6), even_designs(range(1, 4)), 1)
    names = document.instance.cluster.node_names
    for _ in range(3):
        ready = [name for name in names if name not in document.away]
        lost = data.draw(st.lists(st.sampled_from(ready), unique=True, max_size=2), label="lost")
        joined = [name for name in document.away if data.draw(st.booleans(), label=name)]
        if len(ready) - len(lost) + len(joined) < 1:
            break
        document = next_fleet(document, lost, joined, HOUR)
        assert verify_fleet(document).problems == ()
        assert set(lost) <= set(document.away)


def test_how_pipelines_came_to_be(fleet: FleetDocument) -> None:
    """2 + 2 + 3 loses a node of a pair: its other one merges, borrows, or stays idle; then back."""
    pair = next(one for one in fleet.pipelines if len(one.nodes) == 2)
    after = next_fleet(fleet, [pair.nodes[0]], [], HOUR)
    changes = pipeline_changes(after)
    assert len(changes) == len(after.pipelines)
    assert any("kept" in change for change in changes)
    assert after.recovery is not None
    assert after.recovery.before == fleet.pipelines
    back = next_fleet(after, [], [pair.nodes[0]], HOUR)
    assert back.step_time_s == fleet.step_time_s
    again = next_fleet(back, [], [], HOUR)
    assert all(change.endswith("kept") for change in pipeline_changes(again))


def test_a_fleet_that_goes_on_is_verified(fleet: FleetDocument) -> None:
    """An idle node is lost: nothing starts again, so all of the horizon is trained in."""
    spare = start_fleet(fleet_instance(7), even_designs(range(3, 4)), 1)
    after = next_fleet(spare, spare.idle, [], Horizon(3600 * 10**9, 3000 * 10**9))
    assert after.goes_on
    assert after.recovery is not None
    assert after.recovery.steps == pytest.approx(3600 / after.step_time_s)
    assert "steps within 3,600 s, going on without a pause" in shown(after)
    assert verify_fleet(after).problems == ()
    pair = next(one for one in fleet.pipelines if len(one.nodes) == 2)
    assert not next_fleet(fleet, [pair.nodes[0]], [], HOUR).goes_on
    assert not fleet.goes_on


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "steps_bound": lambda f: change(f, "recovery.steps_bound", 0.0),
    "survives": lambda f: change(f, "survives", 7),
    "step_time_s": lambda f: change(f, "step_time_s", 1.0),
    "micro_batches": lambda f: change(f, "pipelines.0.micro_batches", 11),
    "template": lambda f: change(f, "pipelines.0.design", 9),
    "unknown_node": lambda f: change(f, "idle", ["a-99"]),
    "source": lambda f: change(f, "recovery.copies.0.source", f["away"][0]),
    "size": lambda f: change(f, "recovery.copies.0.size_bytes", 1),
    "missing_copy": lambda f: f["recovery"]["copies"].pop(),
    "template_twice": lambda f: f["designs"].append(f["designs"][0]),
    "strategy": lambda f: change(f, "instance.search.recompute", ["full"]),
    "gpus": lambda f: change(f, "designs.0.template.stages.0.group.gpus", [5]),
    "layers": lambda f: change(f, "designs.0.template.stages.1.layers", [3, 5]),
    "memory": lambda f: change(f, "instance.limits.framework_reserve_bytes", 2 * 10**10),
}


@pytest.fixture(scope="module")
def recovered(fleet: FleetDocument) -> dict[str, Any]:
    """A recovery with copies, as fields."""
    pair = next(one for one in fleet.pipelines if len(one.nodes) == 2)
    after = next_fleet(fleet, [pair.nodes[0]], [], HOUR)
    assert after.recovery is not None
    assert after.recovery.copies
    fields: dict[str, Any] = json.loads(to_json(after))
    return fields


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_field_is_refused(recovered: dict[str, Any], name: str) -> None:
    """Also when the digest is made to fit."""
    fields = json.loads(json.dumps(recovered))
    CHANGES[name](fields)
    fields["digest"] = digest(fields)
    document = FleetDocument.model_validate_json(json.dumps(fields))
    verification = verify_fleet(document)
    assert not verification.ok
    assert not any(line.startswith("digest") for line in verification.problems)


def test_bug_a_change_is_named_beside_the_digest(recovered: dict[str, Any]) -> None:
    """What was changed by hand is looked for although the digest tells that something was."""
    fields = json.loads(json.dumps(recovered))
    change(fields, "step_time_s", 1.0)
    document = FleetDocument.model_validate_json(json.dumps(fields))
    problems = verify_fleet(document).problems
    assert [line.split(":")[0] for line in problems][:2] == ["digest", "step_time_s"]


def test_recover_writes_a_fleet_that_verify_accepts(fleet_file: Path, tmp_path: Path) -> None:
    """One command after the other, from file to file; nothing is claimed of the designs."""
    out = tmp_path / "next.json"
    text = output("recover", fleet_file, "--lost", "a-0,a-3", "--out", out)
    assert "a-0, a-3" in text
    assert "no fleet of these templates trains more" in " ".join(text.split())
    assert FleetDocument.read(out).kind == "fleet"
    code, text, _ = run("verify", out)
    assert code == 5
    assert "no fleet of these templates has a step more than" in text
    assert "not proved again: that no pipeline is faster, which is not claimed" in text
    text = output("show", out)
    assert "step time" in text
    text = output("recover", out, "--joined", "a-3", "--json")
    assert json.loads(text)["away"] == ["a-0"]


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
    """What is wrong and what is allowed, on stderr."""
    found, _, text = run("recover", fleet_file, *options)
    assert found == code
    assert words in text
    assert text.count("\n") == 1


def test_a_node_cannot_be_lost_twice(fleet_file: Path, tmp_path: Path) -> None:
    """It is away already."""
    out = tmp_path / "next.json"
    run("recover", fleet_file, "--lost", "a-0", "--out", out)
    text = refused("recover", out, "--lost", "a-0")
    assert "a-0 is lost already" in text


def test_an_instance_is_no_fleet() -> None:
    """A YAML file in place of the fleet: where it stops to be JSON, and what is asked for."""
    text = refused("recover", "instances/oobleck_gpt2.yaml", "--lost", "a40-0")
    assert "oobleck_gpt2.yaml:1:1: Expecting value; allowed: valid JSON: a fleet file" in text


def test_a_changed_fleet_is_not_recovered(fleet: FleetDocument, tmp_path: Path) -> None:
    """What was changed by hand has no right figures to start from."""
    path = tmp_path / "fleet.json"
    path.write_text(to_json(fleet.but(faults=0)), encoding="utf-8")
    text = refused("recover", path, "--lost", "a-0")
    assert "digest" in text


def shown(document: FleetDocument, all_nodes_step_s: float | None = None) -> str:
    """The report as text."""
    return printed(*fleet_text(document, all_nodes_step_s))


def test_bug_what_other_fleets_may_train(recovered: dict[str, Any]) -> None:
    """A bound of twice the steps is a gap of a half, and allows not half as much more but twice."""
    document = FleetDocument.model_validate_json(json.dumps(recovered))
    assert document.recovery is not None
    steps = document.recovery.steps
    found = shown(document.but(recovery={"steps": 250.0, "steps_bound": 500.0}))
    assert "no fleet of these templates trains more than 500.0, gap 50.0 %" in found
    found = shown(document.but(recovery={"steps_bound": steps}))
    lines = [line.rstrip() for line in found.splitlines()]
    assert any(line.endswith("no fleet of these templates trains more") for line in lines)


@pytest.mark.parametrize(
    ("all_nodes_step", "words"),
    [
        (None, "no fleet uses all nodes"),
        (1.01, "1.0 % longer"),
        (0.5, "50.0 % less, but within the horizon it trains no more"),
    ],
)
def test_idle_nodes_are_explained(all_nodes_step: float | None, words: str) -> None:
    """Against the step with all nodes in use, as a share of the fleet's own."""
    document = start_fleet(fleet_instance(7), even_designs(range(3, 4)), 1)
    step_s = None if all_nodes_step is None else all_nodes_step * document.step_time_s
    assert words in shown(document, step_s)


def test_idle_nodes_for_want_of_micro_batches() -> None:
    """12 micro-batches for 12 pipelines: the thirteenth node has none."""
    document = start_fleet(fleet_instance(13), even_designs(range(1, 2)), 1)
    assert len(document.idle) == 1
    assert "every pipeline has one micro-batch, and there are no more" in shown(document)
