"""What commands print: on terminals, into pipes, to nobody."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from solver.cli.terminal import progress_display
from solver.search.progress import Progress


class Terminal(io.StringIO):
    """Keeps what is written to it."""

    def isatty(self) -> bool:
        """Whether lines may be drawn over."""
        return True


def test_bug_counts_were_cut_off_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed stands there in full, the rest in as many lines as it takes."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with progress_display() as tell:
        assert tell is not None
        tell(Progress(45, 1314, 3_136_000_000, 2_011_000_000, 0.359, 1.0, 2.0))
    shown = terminal.getvalue()
    assert "shapes closed 45 of 1314" in shown
    assert "s to go" in shown


ROOT = Path(__file__).resolve().parents[2]
SOLVE = ("solve", "instances/hetero_small.yaml", "--method", "minmax")


def closed_pipe() -> int:
    """A file descriptor that nobody reads from any more."""
    read, write = os.pipe()
    os.close(read)
    return write


def run(stdout: int, *arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a command in a process of its own."""
    command = [sys.executable, "cli.py", *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(stdout)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        SOLVE,
        ("verify", "PLAN"),
        ("--version",),
        *(
            pytest.param(others, marks=pytest.mark.slow)
            for others in (
                (*SOLVE, "--json"),
                ("show", "PLAN"),
                ("catalogue", "bert-large"),
                ("catalogue",),
                ("catalogue", "--schema"),
            )
        ),
    ],
    ids=" ".join,
)
def test_closed_pipe_changes_no_exit_code(arguments: tuple[str, ...], plan_file: Path) -> None:
    """As with `| true`: nothing on stderr, and the exit code still tells what was found."""
    given = [str(plan_file) if one == "PLAN" else one for one in arguments]
    assert run(closed_pipe(), *given) == (0, "")


def test_closed_pipe_hides_no_refusal(plan_file: Path, tmp_path: Path) -> None:
    """A changed plan is refused with exit code 1, whoever reads stdout."""
    changed = tmp_path / "changed.json"
    changed.write_text(plan_file.read_text().replace('"seed": 0', '"seed": 1'))
    code, err = run(closed_pipe(), "verify", changed)
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_closed_pipe_loses_no_page(plan_file: Path, tmp_path: Path) -> None:
    """`report | head` writes the page all the same."""
    page = tmp_path / "page.html"
    assert run(closed_pipe(), "report", plan_file, "--out", page) == (0, "")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_full_disk_is_one_line(plan_file: Path) -> None:
    """Output that goes nowhere for another reason than its reader is an error."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    line = "error: cannot print to stdout: No space left on device\n"
    assert run(os.open("/dev/full", os.O_WRONLY), "show", plan_file) == (2, line)


def test_terminal_without_unicode(plan_file: Path) -> None:
    """Lines of tables and foreign letters are drawn in what the terminal can show."""
    done = subprocess.run(
        [sys.executable, "cli.py", "show", plan_file],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"-----" in done.stdout
    assert done.stdout.isascii()
