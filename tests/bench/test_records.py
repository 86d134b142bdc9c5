"""What benchmarks share, and what each measures in small."""

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import policies
from bench.__main__ import main
from bench.fleets import CASES, contradicted, measured
from bench.records import config_text
from bench.scaling import growth_picture, latest, measure
from formulations.plan import Degrees
from solver.interrupt import NoTimeError
from solver.options import SolveOptions
from tests.conftest import ROOT
from tests.small_instances import plain_config, random_instance

# What benchmarks share: records, and errors in one line.


@pytest.mark.parametrize("name", ["templates", "replay"])
def test_bug_benchmark_without_its_reference_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line; `templates` ended with 0, `replay` with a traceback."""
    monkeypatch.setenv("HETPLAN_REFERENCE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["bench", name])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(rf"error: {tmp_path}.* named by HETPLAN_REFERENCE\n", printed.err)


def test_bug_a_search_out_of_time_ended_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hetplan cannot do, a benchmark says in one line, with hetplan's exit code."""

    def late(*_: object) -> None:
        raise NoTimeError("no recovery found within the limit; raise --time-limit")

    monkeypatch.setattr(policies, "measured", late)
    monkeypatch.setattr(sys, "argv", ["bench", "policies", "oobleck_gpt3_2_7b", "--every", "10m"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert capsys.readouterr().err == (
        "error: no recovery found within the limit; raise --time-limit\n"
    )


def test_bug_tables_died_of_configs_with_degrees_per_group() -> None:
    """Records have the configuration as plan files do; old ones have one tensor degree."""
    degrees = (Degrees(tp=2), Degrees(tp=1, parts=4))
    config = plain_config((1, 1), degrees=degrees, dp=2, pp=4, micro_batch=8)
    assert config_text(config.model_dump(mode="json")) == "2 / 1*4 x 2 x 4, 8"
    chunks = config.but(vpp=2, degrees=degrees[:1] * 2)
    assert config_text(chunks.model_dump(mode="json")) == "2 x 2 x 4 x 2, 8"
    assert config_text({"tp": 1, "dp": 2, "pp": 4, "micro_batch": 8}) == "1 x 2 x 4, 8"
    assert config_text(None) == ""


# The benchmarks of gaps and of fleets: no method beats the exact one, in small.


def test_a_small_case_is_measured_and_not_contradicted() -> None:
    """30 nodes; HiGHS agrees, and both fleets verify."""
    figures = measured(CASES / "nodes_0030.yaml", faults=5, time_limit_s=20)
    assert figures["verified"]
    assert not contradicted(figures)
    assert contradicted(figures | {"milp_step_ns": figures["step_ns"] - 1})
    assert contradicted(figures | {"verified": False})


# The scaling benchmark: its records and its picture.


def test_bug_gaps_were_noted_that_were_never_reached() -> None:
    """What is closed up to a gap has a bound below the plan; stored records say nothing else."""
    records = [measure(random_instance(seed), SolveOptions(gap=0.1)) for seed in range(2)]
    stored = (ROOT / "bench" / "results" / "scaling.jsonl").read_text(encoding="utf-8")
    records += map(json.loads, stored.splitlines())
    assert any(figures["gap"] for figures in records[:2])
    for figures in records:
        assert all(float(gap) + 1e-12 >= figures["gap"] for gap in figures["gap_reached_s"])
    # two dots each of wall time, CPU time and gap, and a name for each
    drawn = latest([{"nodes": nodes, "run": nodes} | records[0] for nodes in (4, 2, 4)])
    dots = "{http://www.w3.org/2000/svg}use[@style]"
    shown = ElementTree.fromstring(growth_picture(drawn)).findall(f".//{dots}")
    assert sum("fill: #d55e00" in dot.attrib["style"] for dot in shown) >= 4


# The commands that bench/README.md begins with run to their end, or end in one line.

_BLOCK = re.search(r"```\n(.*?)```", (ROOT / "bench" / "README.md").read_text("utf-8"), re.S)
COMMANDS = [] if _BLOCK is None else [line.partition("#")[0] for line in _BLOCK[1].splitlines()]
#: Of those that a benchmark has, later ones count: a look at each, not its figures.
SHORTER = {"--time-limit": "2", "--repeats": "1"}


@pytest.mark.slow
@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("printed", COMMANDS)
def test_command_ends_without_a_traceback(printed: str, tmp_path: Path) -> None:
    """Exit code 0, or that of what could not be done, told in one line."""
    words = [sys.executable, *shlex.split(printed)[1:]]
    if len(words) > 3:
        told = subprocess.run([*words[:4], "--help"], cwd=ROOT, capture_output=True, text=True)
        for option, value in {**SHORTER, "--out": str(tmp_path / "records.jsonl")}.items():
            words += [option, value] if option in told.stdout else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode in ((0, 3, 4) if len(words) > 3 else (1,)), done.stderr
    assert done.returncode in (0, 1) or re.fullmatch(r"error: .+\n", done.stderr)
