"""From exceptions to one line on stderr and an exit code."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from formulations.errors import PlannerError
from formulations.instance.input_limits import MOST_TEXT, printable
from solver.cli.interrupt import INTERRUPTED, listening
from solver.cli.terminal import say

P = ParamSpec("P")


def with_error_line(command: Callable[P, None]) -> Callable[P, None]:
    """The command; if it fails, it ends with "error: ..." on stderr and the error's exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with listening() as heard:
                command(*args, **kwargs)
        except PlannerError as error:
            for line in error.lines:
                say(f"error: {printable(line, MOST_TEXT)}", err=True)
            raise typer.Exit(error.exit_code) from error
        except (ImportError, KeyboardInterrupt) as error:
            if isinstance(error, ImportError) and not heard:
                raise
            say("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error

    return wrapped
