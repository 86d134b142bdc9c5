"""How commands fail: one line on stderr and an exit code, also for Ctrl-C, whenever it comes."""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import ParamSpec

from formulations.errors import PlannerError
from solver.interrupt import heard_by

#: Exit code of a command that Ctrl-C has ended, as shells count it: 128 and SIGINT.
INTERRUPTED = 130

P = ParamSpec("P")

# While the interpreter takes itself down, Ctrl-C would end a process that has done its work.
atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded Ctrl-C ends the process: nothing is lost yet.

    An exception would pass through half-loaded modules, some of which turn it into another one.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

    with heard_by(signal.SIGINT, end):
        yield


def with_error_line(command: Callable[P, None]) -> Callable[P, None]:
    """The command; if it fails, it ends with "error: ..." on stderr and the error's exit code.

    Libraries that load when Ctrl-C comes may say that they cannot be imported instead.
    """
    import typer  # here, as this module is loaded before Ctrl-C is listened to

    from solver.cli.terminal import say

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        heard: list[int] = []

        def hear(signum: int, frame: FrameType | None) -> None:
            heard.append(signum)
            raise KeyboardInterrupt

        try:
            with heard_by(signal.SIGINT, hear):
                command(*args, **kwargs)
        except PlannerError as error:
            from formulations.instance.record import MOST_TEXT, printable

            for line in error.lines:
                say(f"error: {printable(line, MOST_TEXT)}", err=True)
            raise typer.Exit(error.exit_code) from error
        except (ImportError, KeyboardInterrupt) as error:
            if isinstance(error, ImportError) and not heard:
                raise
            say("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error

    return wrapped
