"""What the README tells a newcomer to type works, and prints what the README shows."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

import hetplan
from formulations.instance.load import load_instance
from solver.cli import COMMANDS
from solver.result import Proof
from tests.command_line import run
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SET_UP = "python3 -m venv .venv && .venv/bin/pip install -q -e "
MAIN = SET_UP + ". && .venv/bin/python cli.py solve instances/hetero_small.yaml"
TESTS = SET_UP + "'.[dev]' && .venv/bin/python -m pytest"


def example() -> list[str]:
    """Lines of the code block between <!-- example --> and <!-- /example -->."""
    [block] = re.findall(r"<!-- example -->\n```\n(.*?)```\n<!-- /example -->", README, re.DOTALL)
    return str(block).splitlines()


def stable(lines: list[str]) -> list[str]:
    """Lines with text, right-trimmed, without the one that tells how long the search took."""
    return [line.rstrip() for line in lines if line.strip() and not line.startswith("search ")]


def test_page_on_reading_quotes_the_stored_accuracy() -> None:
    """Steps and mean error of each source, as `bench accuracy` last recorded them."""
    records = (ROOT / "bench" / "results" / "accuracy.jsonl").read_text("utf-8").splitlines()
    summary = json.loads(records[-1])["summary"]
    stored = {(row["source"], row["rows"], f"{100 * row['mean']:.1f} %") for row in summary}
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| (\S+) \| [^|]+ \| (\d+) \| ([\d.]+ %) \|$", page, re.MULTILINE)
    assert len(quoted) == 8
    assert {(source, int(steps), error) for source, steps, error in quoted} <= stored


def test_readme_example_is_what_the_main_command_prints() -> None:
    """Every line of the example but the search's time is printed today, in the same order."""
    *launcher, command, path = shlex.split(MAIN.rpartition("&& ")[2])
    assert launcher == [".venv/bin/python", "cli.py"]
    code, out, _ = run(command, ROOT / path)
    assert code == 0
    assert stable(example()) == stable(out.splitlines()) != []


def test_readme_names_both_commands_once() -> None:
    """Main job and tests are one line each; `.ci/run` picks the second one by its end."""
    lines = README.splitlines()
    assert lines.count(MAIN) == 1
    assert [line for line in lines if line.endswith("-m pytest")] == [TESTS]
    script = ROOT / ".ci" / "run"
    assert "grep -e '-m pytest$' README.md" in script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)


def test_page_of_commands_lists_those_of_the_command_line() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("| exit code")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)", page, re.MULTILINE)) == sorted(COMMANDS)


def test_readme_is_read_in_five_minutes() -> None:
    assert len(README.split()) <= 900


def test_readme_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python example solves, prints what the command prints, and its plan is verified."""
    [code] = re.findall(r"<!-- python -->\n```python\n(.*?)```\n", README, re.DOTALL)
    (tmp_path / "instances").symlink_to(ROOT / "instances")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    lines = stable(capsys.readouterr().out.splitlines())
    assert lines[0] == f"optimal {names['solution'].step_time_s} 0.0"
    assert lines[1 : 1 + len(stable(example()))] == stable(example())
    assert lines[-2].startswith("a10-2 (0,) (24, 26)")
    assert lines[-1] == "True ()"
    assert hetplan.verify("plan.json", "instances/hetero_small.yaml").complete


def test_readme_explains_what_closes_configs() -> None:
    """Every word behind "closed by" is explained on its page and by `solve` and `show --help`."""
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    [paragraph] = [line for line in page.splitlines() if "**Closed by**" in line]
    for word in get_args(Proof):
        assert f"`{word}`" in paragraph
    for command in ("solve", "show"):
        words = set(re.findall(r"\w+", run(command, "--help")[1]))
        assert words >= set(get_args(Proof))


def test_bug_readme_instance_is_that_of_the_pages() -> None:
    """The complete instance is one of the examples, on which pages show commands."""
    [text] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    example = ROOT / "docs" / "examples" / "my_cluster.yaml"
    assert text == example.read_text("utf-8")
    assert text in (ROOT / "docs" / "instances.md").read_text("utf-8")
    assert load_instance(example).name == "my_cluster"
