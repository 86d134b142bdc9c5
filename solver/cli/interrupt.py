"""Ctrl-C: one line and exit code 130 wherever it comes, also while modules are still loading."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: Exit code of a command that Ctrl-C has ended, as shells count it: 128 and SIGINT.
INTERRUPTED = 130

# While the interpreter takes itself down, Ctrl-C would end a process that has done its work.
atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _end(signum: int, frame: FrameType | None) -> None:
    """Ends the process at once."""
    sys.stderr.write("interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextmanager
def _heard_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def listening() -> Iterator[list[int]]:
    """A list that holds something as soon as Ctrl-C has come.

    Libraries that load when it comes may say that they cannot be imported instead.
    """
    heard: list[int] = []

    def hear(signum: int, frame: FrameType | None) -> None:
        heard.append(signum)
        raise KeyboardInterrupt

    with _heard_by(hear):
        yield heard


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded Ctrl-C ends the process: nothing is lost yet.

    An exception would pass through half-loaded modules, some of which turn it into another one.
    """
    with _heard_by(_end):
        yield
