"""Pages with consoles, run again; `python -m tests.docs_pages` writes them anew.

Those of the documentation, and those in tests/data/consoles, one for each module of the command
line: what it prints, whole, with its errors and exit codes.
"""

import io
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.command_line import run
from tests.conftest import ROOT

DOCS = ROOT / "docs"
CONSOLES = ROOT / "tests" / "data" / "consoles"
_CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
#: Lines of a report that depend on the machine and on the order in which processes end.
_TIMED = (
    "search ",
    "second best ",
    "elsewhere ",
    "considered ",
    "closed by ",
    "checked: log of ",
    "spent ",
)


def pages(folder: Path) -> list[Path]:
    """All pages of a folder that show a console."""
    return [
        path for path in sorted(folder.rglob("*.md")) if _CONSOLE.search(path.read_text("utf-8"))
    ]


def check_consoles(*names: str) -> Callable[[str], None]:
    """A test that commands print today what these pages of CONSOLES show."""

    def test(name: str) -> None:
        page = CONSOLES / f"{name}.md"
        assert stable(replayed(page)) == stable(page.read_text("utf-8"))

    marked: Callable[[str], None] = pytest.mark.parametrize("name", names)(test)
    return marked


def replayed(page: Path) -> str:
    """The page with what its commands print today.

    They run in order, in a folder with the instances and with the examples of the page.
    """
    examples = CONSOLES if page.parent == CONSOLES else DOCS / "examples"
    with TemporaryDirectory() as folder:
        for data in (ROOT / "instances", ROOT / "tests" / "data" / "huggingface"):
            (Path(folder) / data.name).symlink_to(data)
        for example in examples.iterdir():
            if example.is_file():
                shutil.copy(example, folder)
        with chdir(folder):
            return _CONSOLE.sub(lambda block: _console(block[1]), page.read_text("utf-8"))


def stable(text: str) -> list[str]:
    """The lines of a page, without those that differ from run to run."""
    kept, timed = [], False
    for line in re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text).splitlines():
        if not line.startswith(" " * 14):  # else it goes on with the labelled line above
            timed = line.startswith(_TIMED)
        if not timed:
            kept.append(line.rstrip())
    return kept


def _console(block: str) -> str:
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_printed(command)}" for command in commands)


def _printed(command: str) -> str:
    """What a command prints, and its exit code if that is not 0."""
    ours, _, others = command.partition(" | ")
    program, *arguments = shlex.split(ours)
    if program == "hetplan":
        code, out, err = run(*arguments)
        if others:
            out = _of_shell(others, out)
        return out + err + (f"exit code {code}\n" if code else "")
    if program == "python":
        with redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(arguments[0])
        return printed.getvalue()
    return _of_shell(command)


def _of_shell(command: str, text: str = "") -> str:
    done = subprocess.run(command, shell=True, input=text, capture_output=True, text=True)
    return done.stdout + done.stderr


if __name__ == "__main__":
    for path in (*pages(DOCS), *pages(CONSOLES)):
        text = replayed(path)
        if stable(text) != stable(path.read_text("utf-8")):
            path.write_text(text, "utf-8")
