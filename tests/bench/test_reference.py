"""Benchmarks that need data which are not ours, where these are absent."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.records import ROOT, reference


@pytest.mark.parametrize("name", ["templates", "replay"])
def test_bug_benchmark_without_its_reference_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and one line; `templates` ended with 0, `replay` with a traceback."""
    monkeypatch.setenv("HETPLAN_REFERENCE", str(tmp_path))
    command = [sys.executable, "-m", "bench", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path}")
    assert line.endswith("named by HETPLAN_REFERENCE")


def test_readme_says_where_the_originals_are() -> None:
    """Of every folder that a benchmark reads."""
    readme = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Reference data")[2].partition("\n## ")[0]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").glob("*.py"))
    folders = set(re.findall(r'"(\w+)/[\w*/]+\.(?:json|csv)"', code)) - {"results"}
    assert len(folders) > 5
    for folder in folders:
        assert f"`{folder}/`" in table
    assert table.count("github.com/") >= 9


def test_one_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two patterns the one without a file."""
    (tmp_path / "a.json").touch()
    assert reference("*.json", folder=tmp_path) == tmp_path
    with pytest.raises(SystemExit) as caught:
        reference("*.json", "b/*.csv", folder=tmp_path)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/b/*.csv: no such file")
