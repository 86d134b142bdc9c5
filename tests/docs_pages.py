"""The consoles of the documentation, run again; `python -m tests.docs_pages` writes them anew."""

import io
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.command_line import run

DOCS = Path(__file__).resolve().parent.parent / "docs"
_CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
#: Lines of a report that depend on the machine and on the order in which processes end.
_TIMED = ("search ", "elsewhere ", "configs ", "closed by ", "checked: log of ")


def pages() -> list[Path]:
    """All pages that show a console."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _CONSOLE.search(path.read_text("utf-8"))]


def replayed(page: Path) -> str:
    """The page with what its commands print today, run in order in a folder with the examples."""
    with TemporaryDirectory() as folder:
        for example in (DOCS / "examples").iterdir():
            if example.is_file():
                shutil.copy(example, folder)
        with chdir(folder):
            return _CONSOLE.sub(lambda block: _console(block[1]), page.read_text("utf-8"))


def stable(text: str) -> list[str]:
    """The lines of a page, without those that differ from run to run."""
    kept, timed = [], False
    for line in text.splitlines():
        if not line.startswith(" " * 14):  # else it goes on with the labelled line above
            timed = line.startswith(_TIMED)
        if not timed:
            kept.append(line.rstrip())
    return kept


def _console(block: str) -> str:
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_printed(*shlex.split(command))}" for command in commands)


def _printed(program: str, *arguments: str) -> str:
    """What a command prints; it must succeed."""
    programs: dict[str, Callable[..., str]] = {"hetplan": _hetplan, "cat": _cat, "python": _python}
    return programs[program](*arguments)


def _hetplan(*arguments: str) -> str:
    code, out, err = run(*arguments)
    assert (code, err) == (0, ""), err
    return out


def _cat(path: str) -> str:
    return Path(path).read_text("utf-8")


def _python(script: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(script)
    return printed.getvalue()


if __name__ == "__main__":
    for path in pages():
        text = replayed(path)
        if stable(text) != stable(path.read_text("utf-8")):
            path.write_text(text, "utf-8")
