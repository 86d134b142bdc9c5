"""Ctrl-C held back where it would break something halfway."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C comes at the end of the block, not inside it.

    For libraries whose loading turns it into another error, and for processes that are to start
    with it held back.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
