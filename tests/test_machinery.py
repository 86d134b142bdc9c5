"""What tests rest on: time limits, stored figures."""

import subprocess
from pathlib import Path

import pytest

from tests import recorded
from tests.conftest import SLOW_S, kill_children, present

# No test holds a run for ever, nor do the processes that it has started.


def test_bug_tests_had_no_time_limit(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) < SLOW_S


def test_children_of_a_process_end_with_theirs() -> None:
    """A shell whose child is killed stops waiting for it."""
    script = "sleep 1000 & echo started; wait $!"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
        present(shell.stdout).readline()
        kill_children(shell.pid)
        assert shell.wait() == 128 + 9


# Stored figures: what counts as the same.


def test_a_figure_is_the_stored_one_or_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    monkeypatch.setenv("HETPLAN_RECORD_FIGURES", "1")
    recorded.as_recorded("bounds", {"a": [1, 0.1, None], "b": 2})
    monkeypatch.delenv("HETPLAN_RECORD_FIGURES")
    recorded.as_recorded("bounds", {"a": [1, 0.1 + 1e-12, None]})
    for case, figure in {"a": [1, 0.2, None], "b": 2.0, "c": 1}.items():
        with pytest.raises(AssertionError, match=case):
            recorded.as_recorded("bounds", {case: figure})
