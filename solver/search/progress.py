"""What a running search tells: a snapshot for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """State of a search. None: not known yet; gap is relative, as in `solver.result.Result`."""

    shapes_closed: int
    shapes_total: int
    incumbent_ns: int | None
    bound_ns: int | None
    gap: float | None
    elapsed_s: float
    limit_s: float | None = None

    @property
    def left_s(self) -> float | None:
        """Until the time limit; None without one."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.elapsed_s)


Report = Callable[[Progress], None]
