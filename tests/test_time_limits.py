"""No test holds a run for ever, nor do the processes that it has started."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SLOW_S, kill_children

HANGS = """
import subprocess

def test_hangs():
    subprocess.run(["sleep", "1000"], check=True)

def test_next():
    pass
"""


def test_bug_tests_had_no_time_limit(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) < SLOW_S


@pytest.mark.slow
def test_child_that_hangs_fails_its_test_alone(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is killed before the limit ends the run, which goes on; slow ones have a longer limit."""
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args == (SLOW_S,)
    path = tmp_path / "test_hangs.py"
    path.write_text(HANGS, encoding="utf-8")
    settings = ["-c", "pyproject.toml", "-p", "tests.conftest", "--timeout", "20", str(path)]
    words = [sys.executable, "-m", "pytest", *settings]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout


def test_children_of_a_process_end_with_theirs() -> None:
    """A shell whose child is killed stops waiting for it."""
    script = "sleep 1000 & echo started; wait $!"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        kill_children(shell.pid)
        assert shell.wait() == 128 + 9
