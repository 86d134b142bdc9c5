"""What benchmarks share: records, and errors in one line."""

import re
import sys
from pathlib import Path

import pytest

from bench import policies
from bench.__main__ import main
from bench.records import ROOT, config_text
from formulations.plan import Degrees
from solver.interrupt import NoTimeError
from tests.small_instances import plain_config


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
    readme = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Reference data")[2].partition("\n## ")[0]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").glob("*.py"))
    folders = set(re.findall(r'"(\w+)/[\w*/]+\.(?:json|csv)"', code)) - {"results"}
    assert len(folders) > 5
    assert all(f"`{folder}/`" in table for folder in folders)
    assert table.count("github.com/") >= 9


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
