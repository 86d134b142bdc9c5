"""Ctrl-C held back where it would break something halfway."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C comes at the end of the block, not inside it.

    For libraries whose loading turns it into another error, and for processes that start before
    they can ignore it. By a handler: a blocked signal would go to one of numpy's threads.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone hears it
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: heard.append(signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)
