"""Tests of what commands do with files of mixed lengths."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from solver.files import sealed, to_json
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from tests.cli.test_lengths import TABLE
from tests.command_line import output, refused, run
from tests.mixed_rows import SIZES, SMALL


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance whose two strategies both pay, and its step in free order."""
    folder = tmp_path_factory.mktemp("lengths")
    text = (SMALL + TABLE).replace("SIZES", SIZES).replace("count: 40}", "count: 4000}")
    text = text.replace("10 ms, 2048: 20 ms", "1 ms, 2048: 2 ms")
    (folder / "small.yaml").write_text(text)
    step, picture = folder / "step.json", folder / "step.svg"
    output("lengths", folder / "small.yaml", "--order", "free", "--out", step, "--svg", picture)
    return folder


def test_a_step_is_verified(files: Path) -> None:
    """With its instance, whose digest it holds, and not with another one."""
    step = files / "step.json"
    code, out, err = run("verify", step, "--instance", files / "small.yaml")
    assert code == 5  # in any order the bound is CP-SAT's word
    assert "CP-SAT's word" in out + err
    other = files / "other.yaml"
    other.write_text((files / "small.yaml").read_text().replace("count: 4000", "count: 4001"))
    code, out, _ = run("verify", step, "--instance", other)
    assert code == 1
    assert "refused: instance.lengths.classes[0].count: found" in out


def test_bug_forged_times_passed_as_those_of_the_instance(files: Path) -> None:
    """A right step of other strategies is one by itself, but not of the instance in the file."""
    document = LengthsDocument.model_validate_json((files / "step.json").read_text())
    mixed = document.problem
    strategies = (replace(mixed.strategies[0], visit_ns=7), *mixed.strategies[1:])
    chosen = choose(replace(mixed, strategies=strategies), "ascending")
    forged = files / "forged_times.json"
    name, above = document.workload, document.above
    forged.write_text(to_json(build_lengths(chosen, name, document.instance, (), above)))
    code, out, _ = run("verify", forged)
    assert code == 1
    assert "refused: problem.strategies[0].visit_ns: found 7, expected 0" in out


def test_a_step_is_shown_and_drawn(files: Path) -> None:
    """A line for each group, the best single strategy, and a picture with a bar for each."""
    out = output("show", files / "step.json", "--svg", files / "shown.svg")
    document = json.loads((files / "step.json").read_text())
    assert len(document["groups"]) == 2
    for name in ("dp 4, tp 1, pp 1", "wide", "best single", "times as long"):
        assert name in out
    drawn = ET.parse(files / "shown.svg").getroot()
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sum("tokens" in title for title in titles) == 2
    assert sum(title.startswith("switch of") for title in titles) == len(document["switches"]) == 2
    assert (files / "shown.svg").read_text() == (files / "step.svg").read_text()


def test_bug_the_single_strategy_was_one_bar(files: Path) -> None:
    """Its rows, reduction of gradients and optimizer, as those of the step; all in the legend."""
    text = (files / "small.yaml").read_text()
    text = text.replace("8192: 48 ms}", "8192: 48 ms}, per_visit: 30 ms, per_step: 70 ms")
    (files / "once.yaml").write_text(text)
    assert run("lengths", files / "once.yaml", "--svg", files / "once.svg")[0] == 0
    drawn = ET.parse(files / "once.svg").getroot()
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    single = next(n for n, title in enumerate(titles) if title.startswith("wide: all sequences"))
    reduced, optimizer = titles[single + 1 :]
    assert reduced.startswith("gradients reduced by wide, 30")
    assert optimizer.startswith("optimizer of wide, 70")
    legend = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert legend[-1].endswith("; best single: 70.00 ms")


def test_a_step_has_a_page(files: Path) -> None:
    """It needs no network, and names every strategy."""
    code, out, err = run("report", files / "step.json", "--out", files / "step.html")
    assert (code, err, out) == (0, "", f"wrote {files / 'step.html'}\n")
    page = (files / "step.html").read_text()
    assert "http" not in page
    assert page.count("dp 4, tp 1, pp 1") >= 3
    err = refused("report", files / "step.json", "--trace", files / "t.json")


def test_changed_files_are_not_shown(files: Path) -> None:
    """One line that names the field, exit code 2."""
    document = LengthsDocument.model_validate_json((files / "step.json").read_text())
    faster = sealed(document.model_copy(update={"step_time_s": 1e-3}))
    (files / "forged.json").write_text(to_json(faster))
    for command in ("show", "report"):
        err = refused(
            command, files / "forged.json", "--out" if command == "report" else "--svg", files / "x"
        )
        assert "step_time_s: found 0.001" in err
    assert run("verify", files / "forged.json")[0] == 1


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema_version",), 9, "schema version 9; allowed: 4; run lengths again"),
        (("problem", "atoms", 0, "tokens"), 4000, "by ascending tokens"),
        (("problem", "switching", "gradients_ns"), [[0]], "a table of switches of another size"),
        (("problem", "strategies", 0, "replicas"), [], "replicas and atoms_ns; allowed: one"),
        (
            ("problem", "strategies", 0, "replicas", 0, "time", "rows_ns"),
            [[5, 5]],
            "1 rows_ns, packed",
        ),
        (("problem", "rowz"), 5, "problem.rowz"),
        (("groups",), [], "groups"),
    ],
)
def test_files_that_are_none(
    path: tuple[str | int, ...], value: object, said: str, files: Path
) -> None:
    """One line that says where, what was found and what is allowed."""
    document = json.loads((files / "step.json").read_text())
    at = document
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    broken = files / "broken.json"
    broken.write_text(json.dumps(document))
    assert said in refused("verify", broken)


def test_bug_solve_did_not_say_that_it_leaves_lengths_out_of_account(files: Path) -> None:
    """Its plan is for sequences that are all as long as the workload's."""
    out = output("solve", files / "small.yaml", "--gap", 0.5, "--workers", 1)
    assert "lengths       not looked at: all sequences as " in out
