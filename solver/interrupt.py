"""Ctrl-C held back where it would break something halfway, and time limits that come like it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from formulations.errors import PlannerError

#: Seconds beyond a time limit in which what asks whether to stop can hand over what it knows.
GRACE_S = 0.3
#: The least that a timer can be set to: 0 would switch it off.
LEAST_S = 1e-6
#: Seconds after which it comes again, for a block around the one that has caught it.
AGAIN_S = 0.2


#: Whether a search is to stop, as it asks from time to time.
Stop = Callable[[], bool]


def after(effort: int | None, stop: Stop) -> Stop:
    """Stops as `stop` does, or at the latest after it was asked `effort` times."""
    if effort is None:
        return stop
    questions = iter(range(effort))
    return lambda: next(questions, None) is None or stop()


class TimeUp(BaseException):
    """The time limit is over; no Exception, as KeyboardInterrupt: no library catches it."""


@dataclass(frozen=True)
class Deadline:
    """Time since the begin of some work, and its limit; None: there is none."""

    limit_s: float | None
    begin_s: float = field(default_factory=lambda: time.monotonic())

    @property
    def elapsed_s(self) -> float:
        """Since the begin."""
        return time.monotonic() - self.begin_s

    @property
    def left_s(self) -> float | None:
        """Until the limit."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.elapsed_s)

    @property
    def end_s(self) -> float | None:
        """Until what does not ask whether to stop is ended, as `time_up_after` does."""
        return None if self.left_s is None else self.left_s + GRACE_S

    def over(self) -> bool:
        """Whether the limit has come."""
        return self.left_s == 0.0

    def part(self, limit_s: float | None) -> "Deadline":
        """A deadline from now on, which ends with this one at the latest."""
        limits = [seconds for seconds in (limit_s, self.left_s) if seconds is not None]
        return Deadline(min(limits, default=None))

    def check(self) -> None:
        """Raises TimeUp if the limit has come."""
        if self.over():
            raise TimeUp


class NoTimeError(PlannerError):
    """The time limit was over before there was anything to return."""

    exit_code = 4


@contextmanager
def heard_by(
    signum: signal.Signals, handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """The signal goes to this handler inside the block; of no effect in other threads than main."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    before = signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and the end of the time come at the end of the block, not inside it.

    For libraries whose loading turns it into another error, and for processes that start before
    they can ignore it. By a handler: a blocked signal would go to one of numpy's threads.
    """
    heard = set[int]()

    def hear(signum: int, frame: FrameType | None) -> None:
        heard.add(signum)

    try:
        with heard_by(signal.SIGINT, hear), heard_by(signal.SIGALRM, hear):
            yield
    finally:
        for signum in sorted(heard):  # the end of the time, the last one, comes again and again
            signal.raise_signal(signum)


@contextmanager
def time_up_after(seconds: float | None) -> Iterator[None]:
    """`TimeUp` is raised in the block after so many seconds, whatever it does then.

    For work that asks too seldom whether to stop. When the time of a block around this one is up
    first, it is raised here and then there. Of no effect without a limit, and in other threads than
    the main one, which alone hears signals.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    over = False

    def hear(signum: int, frame: FrameType | None) -> None:
        if not over:
            raise TimeUp

    begin, before = time.monotonic(), signal.signal(signal.SIGALRM, hear)
    around_s, _ = signal.getitimer(signal.ITIMER_REAL)
    try:
        own_s = min(seconds, around_s or seconds)
        signal.setitimer(signal.ITIMER_REAL, max(own_s, LEAST_S), AGAIN_S)
        yield
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if around_s:  # of a block around this one
            left_s = around_s - (time.monotonic() - begin)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, LEAST_S), AGAIN_S)
