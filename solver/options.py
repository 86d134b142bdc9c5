"""What the caller may choose about a search."""

from dataclasses import dataclass
from typing import Literal

Method = Literal["exact", "minmax", "cpsat", "milp"]


@dataclass(frozen=True)
class SolveOptions:
    """Options of `solver.solve`; the defaults prove optimality without a time limit.

    gap: relative; a plan within it of the bound is OPTIMAL. workers: processes of the
    exact search, threads of CP-SAT and HiGHS; with one, equal seeds give equal plans.
    """

    method: Method = "exact"
    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    workers: int = 1
