"""Runs the command line inside the test process, and reads what is printed."""

from io import StringIO

from rich.console import Console, RenderableType
from typer.testing import CliRunner

from solver.cli import app


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def printed(*parts: RenderableType) -> str:
    """Parts of a report as text, each on lines of its own."""
    page = StringIO()
    for part in parts:
        Console(width=200, file=page).print(part)
    return page.getvalue()
