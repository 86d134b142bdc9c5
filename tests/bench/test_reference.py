"""Benchmarks that need data which are not ours, where these are absent."""

import re
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.records import ROOT


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


def test_readme_says_where_the_originals_are() -> None:
    """Of every folder that a benchmark reads."""
    readme = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Reference data")[2].partition("\n## ")[0]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").glob("*.py"))
    folders = set(re.findall(r'"(\w+)/[\w*/]+\.(?:json|csv)"', code)) - {"results"}
    assert len(folders) > 5
    assert all(f"`{folder}/`" in table for folder in folders)
    assert table.count("github.com/") >= 9
