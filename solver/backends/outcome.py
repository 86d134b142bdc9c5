"""What an engine says about one native model, in the words of the project."""

from collections.abc import Sequence
from dataclasses import dataclass

from solver.result import Status, Termination


@dataclass(frozen=True)
class Outcome:
    """Minimisation of integers: an UNKNOWN outcome keeps its bound.

    objective: of `values`, the best solution found, indexed by variable; None without one.
    Whole, up to the engine's tolerances.
    bound: proved lower bound of every solution; None if there is no solution, or no proof yet.
    trouble: what the engine said if it should not have ended so.
    """

    status: Status
    termination: Termination
    runtime_s: float
    objective: int | None = None
    bound: int | None = None
    values: Sequence[float] | None = None
    trouble: str | None = None
