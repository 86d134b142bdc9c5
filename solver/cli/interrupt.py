"""Ctrl-C: one line and exit code 130 wherever it comes, also while modules are still loading."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Exit code of a command that Ctrl-C has ended, as shells count it: 128 and SIGINT.
INTERRUPTED = 130


def end() -> None:
    """Ends the process at once."""
    sys.stderr.write("interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _end(signum: int, frame: FrameType | None) -> None:
    end()


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded Ctrl-C ends the process: nothing is lost yet.

    An exception would pass through half-loaded modules, some of which turn it into another one.
    """
    try:
        before = signal.signal(signal.SIGINT, _end)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
