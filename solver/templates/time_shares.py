"""How long a search may take: a limit for all of it, shares of what is left, Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import TypeVar

from solver.interrupt import GRACE_S, time_up_after

Stop = Callable[[], bool]
Result = TypeVar("Result")


class Clock:
    """The time from now on, `limit_s` of it if given; `around`: one that ends and hears this one.

    The first Ctrl-C is a wish to stop, heard where work asks for it, so that none of its tables is
    left half made; the second one ends everything.
    """

    def __init__(self, limit_s: float | None, around: "Clock | None" = None) -> None:
        self._end_s = None if limit_s is None else perf_counter() + limit_s
        self._hard_end_s = None if self._end_s is None else self._end_s + GRACE_S
        self._heard = list[int]()
        if around is not None:
            self._hard_end_s, self._heard = around._hard_end_s, around._heard

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has come."""
        return bool(self._heard)

    @property
    def is_over(self) -> bool:
        """Whether there is no time left, or Ctrl-C has come."""
        return self.interrupted or (self._end_s is not None and perf_counter() >= self._end_s)

    @contextmanager
    def until_hard_end(self) -> Iterator[None]:
        """What does not ask whether to stop is ended a little after the limit. Raises TimeUp."""
        end_s = self._hard_end_s
        with time_up_after(None if end_s is None else max(0.0, end_s - perf_counter())):
            yield

    def share(self, parts: float) -> Stop:
        """Stops after one of so many equal shares of the time that is left."""
        return until(self._end_s, parts)

    def run(self, work: Callable[[Stop], Result], stop: Stop) -> Result:
        """What work gives; after Ctrl-C what it gives without more time."""

        def hear(signum: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self._heard.append(signum)

        if threading.current_thread() is not threading.main_thread():
            return work(stop)
        before = signal.signal(signal.SIGINT, hear)
        try:
            return work(lambda: self.interrupted or stop())
        finally:
            signal.signal(signal.SIGINT, before)


def until(end_s: float | None, sharing: float) -> Stop:
    """Stops after one of so many equal shares of the time that is left."""
    if end_s is None:
        return lambda: False
    now_s = perf_counter()
    own_s = now_s + max(0.0, end_s - now_s) / sharing
    return lambda: perf_counter() > own_s
