"""Switch files and the commands that take them."""

import json
from pathlib import Path
from typing import get_args

import pytest

from formulations.errors import PlanError
from formulations.lengths.problem import Moves
from solver.document import PlanDocument
from solver.switch_document import SwitchDocument
from solver.switching.documented import check_alike
from tests.command_line import output, refused, run
from tests.conftest import ROOT
from tests.resealed import forged as forged_plan
from tests.switch_cases import example


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two plan files of FASOP's small cluster, of unlike degrees; instance.yaml beside them."""
    folder = tmp_path_factory.mktemp("plans")
    paths = [folder / "from.json", folder / "to.json"]
    text = (ROOT / "instances" / "hetero_small.yaml").read_text(encoding="utf-8")
    text = text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/")
    for path, degrees in zip(paths, ("[1]", "[2]"), strict=True):
        own = folder / "instance.yaml"
        own.write_text(text.replace("[1, 2, 4]\n", f"{degrees}\n", 1))
        output("solve", own, "--gap", 0.05, "--workers", 1, "--out", path)
    return paths


def test_switch_writes_a_file_that_all_commands_take(two: list[Path], tmp_path: Path) -> None:
    """`verify`, `show` and `report`; both kinds of moves take no less than one."""
    out, page, picture = (tmp_path / name for name in ("switch.json", "page.html", "picture.svg"))
    text = output("switch", *two, "--moves", "both", "--out", out)
    assert "no plan takes less than" in text
    assert run("verify", out)[0] == 0
    assert run("show", out, "--svg", picture)[1] == text
    assert "published rule" in picture.read_text(encoding="utf-8")
    assert run("report", out, "--out", page)[0] == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    times = [
        json.loads(run("switch", *two, "--moves", moves, "--json")[1])["time_s"]
        for moves in get_args(Moves)
    ]
    assert times[2] >= max(times[:2])


def test_bug_switches_between_other_lengths_differed_from_their_instance(
    two: list[Path], tmp_path: Path
) -> None:
    """Its model and machines are those of the file, or the first field that differs is told.

    Of the sequence length and the batch, which two plans need not share, a switch is free.
    """
    out, own = tmp_path / "switch.json", tmp_path / "instance.yaml"
    output("switch", *two, "--out", out)
    text = (two[0].parent / "instance.yaml").read_text(encoding="utf-8")
    switch = SwitchDocument.model_validate_json(out.read_text(encoding="utf-8"))
    batch = f"global_batch: {switch.workload.global_batch}"
    assert batch in text
    for old, new, expected in (
        ("", "", 0),
        ("nodes: 1", "nodes: 2", 1),
        (batch, "global_batch: 64", 0),
    ):
        own.write_text(text.replace(old, new, 1), encoding="utf-8")
        code, words, _ = run("verify", out, "--instance", own)
        assert code == expected
        assert ("refused: instance.cluster: groups: found 1 " in words) is (code == 1)


def test_plans_of_other_models_or_machines_are_refused(two: list[Path]) -> None:
    """One line that names the first difference; sequence length and batch may differ."""
    own, names = PlanDocument.read(two[0]), ("a.json", "b.json")
    link = "instance.cluster.groups.0.inter_node.bandwidth_bytes_per_s"
    for path, value, named in (
        ("instance.workload.name", "other", "workload: name: other"),
        ("instance.workload.layer_runs.1.count", 23, "workload: layers"),
        (link, 7e9, r"cluster: groups\[0\].inter_node"),
        ("instance.cluster.groups.1.nodes", 2, "cluster: groups"),
    ):
        with pytest.raises(PlanError, match=rf"{named}.* as in a\.json"):
            check_alike(own, forged_plan(own, {path: value}), names)
    longer = {"instance.workload.sequence_length": 64, "instance.workload.global_batch": 8}
    check_alike(own, forged_plan(own, longer), names)


def test_files_that_are_no_plans_are_refused(two: list[Path], tmp_path: Path) -> None:
    """A switch, an instance, nothing; a trace is of plans, and an instance is no plan."""
    out, text = tmp_path / "switch.json", tmp_path / "text.json"
    output("switch", *two, "--out", out)
    text.write_text("name: x\n", encoding="utf-8")
    for other in (out, text, tmp_path / "none.json"):
        refused("switch", two[0], other)
        refused("switch", other, two[0])
    refused("report", out, "--trace", tmp_path / "x.json", "--out", tmp_path / "x.html")
    refused("verify", out, "--instance", two[0])


def test_what_an_owner_sends_to_many_nodes_is_one_sending() -> None:
    """Unless it goes by way of a GPU, of whose node all receivers are."""
    ways = [(n, way) for n, of in enumerate(example().classes) for way in of.sendings]
    direct = [(n, way.begin, way.end, way.source) for n, way in ways if way.via is None]
    assert len(direct) == len(set(direct))
    for _, way in ways:
        nodes = {gpu.partition(":")[0] for gpu in way.receivers}
        assert way.via is None or (way.via in way.receivers and len(nodes) == 1)
