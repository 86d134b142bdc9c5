"""Time for proofs: when to stop, and how a proof is left that takes too long."""

import time


class TimeUpError(Exception):
    """A proof was left, or not begun, as it would take too long; nothing follows from it."""


class Clock:
    """Time since it was made, against a limit; a clock may run within another one."""

    def __init__(self, limit_s: float | None = None, outer: "Clock | None" = None) -> None:
        self.limit_s, self.outer, self.begin = limit_s, outer, time.monotonic()

    @property
    def over(self) -> bool:
        """Whether its limit, or that of the outer clock, is reached."""
        own = self.limit_s is not None and time.monotonic() - self.begin >= self.limit_s
        return own or (self.outer is not None and self.outer.over)

    def check(self) -> None:
        """Raises TimeUpError if time is up."""
        if self.over:
            raise TimeUpError
