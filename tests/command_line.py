"""Runs the command line inside the test process, and reads what is printed."""

from io import StringIO

from rich.console import Console, RenderableType
from typer.testing import CliRunner

from solver.cli import app, terminal

terminal.FIRST_S = 1e6  # what is printed does not depend on how long it takes


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def output(*arguments: object) -> str:
    """Stdout of a command that succeeds, and has nothing to say of it on stderr."""
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    return out


def refused(*arguments: object, code: int = 2) -> str:
    """The one printable line on stderr of a command with this exit code, and nothing on stdout."""
    found, out, err = run(*arguments)
    assert (found, out, err[:7], err[-1:]) == (code, "", "error: ", "\n"), err
    assert err[:-1].isprintable()
    return err


def printed(*parts: RenderableType) -> str:
    page = StringIO()
    for part in parts:
        Console(width=200, file=page).print(part)
    return page.getvalue()
