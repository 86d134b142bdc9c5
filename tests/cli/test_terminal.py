"""What commands print: on terminals, into pipes, to nobody."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from formulations.errors import PlannerError
from solver.cli import terminal
from solver.cli.terminal import progress_display, say, steps_display
from solver.search.plan_search import Progress
from tests.conftest import ROOT


class Terminal(io.StringIO):
    """Keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def test_bug_counts_were_cut_off_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed stands there in full, the rest in as many lines as it takes."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with progress_display() as tell:
        tell(Progress(45, 1314, 3_136_000_000, 2_011_000_000, 0.359, 1.0, 2.0))
    shown = " ".join(screen.getvalue().split())
    assert "configurations closed 45 of 1314" in shown
    assert re.search(r"best plan 3.136 s, bound 2.011 s, gap 35.9 %, \d s, at most \d s to", shown)


def test_logs_have_lines_of_progress_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first after a while, though nothing is done yet; none of what takes less."""
    log, over = io.StringIO(), threading.Event()
    monkeypatch.setattr(sys, "stderr", log)
    with steps_display("plans"):
        pass
    assert log.getvalue() == ""
    monkeypatch.setattr(terminal, "FIRST_S", 0.001)

    def say_and_tell(text: str, *, err: bool) -> None:
        log.write(f"{text}\n" * err)
        over.set()

    monkeypatch.setattr(terminal, "say", say_and_tell)
    with steps_display("plans") as tell:
        assert over.wait(10)
        tell(1, 2)
        over.clear()
        assert over.wait(10)
        tell(2, 2, "done")
        over.clear()
        assert over.wait(10)
    first, *_, last = log.getvalue().splitlines()
    assert (first, last) == ("plans: starting, 0 s", "plans 2 of 2: done, 0 s")
    assert "plans 1 of 2" in log.getvalue()


def test_bug_seconds_stood_still_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told for 40 s: the display's clock and what is left of the limit go on."""
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    steps = terminal._Steps()
    now_s[0] += 5
    steps.show(1, 2, "bound 2 s", left_s=50.0)
    now_s[0] += 40
    assert str(steps) == "bound 2 s, 45 s, at most 10 s to go"
    steps.show(2, 2)
    assert str(steps) == "45 s"


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A file descriptor that nobody reads from any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def run(stdout: int, *arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "cli.py", *map(str, arguments)],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments", [("--version",), ("report", "PLAN", "--out", "PAGE")], ids=" ".join
)
def test_closed_pipe_changes_no_exit_code(
    arguments: tuple[str, ...], closed_pipe: int, plan_file: Path, tmp_path: Path
) -> None:
    """As with `| true`: nothing on stderr, files are written, the exit code tells what was found.

    A changed plan is refused with exit code 1, whoever reads stdout.
    """
    paths = {"PLAN": plan_file, "PAGE": tmp_path / "page.html"}
    assert run(closed_pipe, *(paths.get(word, word) for word in arguments)) == (0, "")
    if "PAGE" in arguments:
        assert paths["PAGE"].read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        plan_file.write_text(plan_file.read_text().replace('"seed": 0', '"seed": 1'))
        code, err = run(closed_pipe, "verify", plan_file)
        assert (code, err[:7], err.count("\n")) == (1, "error: ", 1)


def test_closed_pipe_drops_the_rest(closed_pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody reads goes to nowhere, also what is written later."""
    with os.fdopen(os.dup(closed_pipe), "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        say("one")
        say("two")


def test_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that goes nowhere for another reason than its reader is an error."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(PlannerError, match="cannot print to stdout: No space left"):
            say("text")
