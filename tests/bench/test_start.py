"""The end-to-end benchmark: what it runs, measures and says."""

import json
import sys
from pathlib import Path

from bench.records import append, record
from bench.start import CASES, command, timed


def test_commands_solve_stored_instances() -> None:
    """From the repository's root, with a relative path; the files that they name exist."""
    words = command(CASES["small"], 30)
    assert words[1:4] == ["cli.py", "solve", "instances/hetero_small.yaml"]
    assert words[4:] == ["--json", "--gap", "0.0", "--time-limit", "30"]
    for case in CASES.values():
        assert (Path(__file__).parents[2] / command(case, 1)[3]).is_file()


def test_time_memory_exit_code_and_output_are_measured() -> None:
    """A process that prints a line and exits with 3."""
    program = "print('one'); raise SystemExit(3)"
    figures, output = timed([sys.executable, "-c", program])
    assert output == "one\n"
    assert figures["exit_code"] == 3
    assert figures["wall_s"] > 0
    assert figures["peak_rss_bytes"] > 1 << 20


def test_records_are_appended_as_json_lines(tmp_path: Path) -> None:
    """Two calls, two lines, each with its figures."""
    path = tmp_path / "results" / "x.jsonl"
    for figure in (1, 2):
        append(path, [record("x", {"figure": figure})])
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    assert [one["figure"] for one in lines] == [1, 2]
    assert all(one["benchmark"] == "x" for one in lines)
