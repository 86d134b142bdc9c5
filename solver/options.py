"""What the caller may choose about a search."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from formulations.errors import PlannerError

Method = Literal["exact", "minmax", "cpsat", "milp"]

#: Formats in which the model of a method can be written.
MODEL_SUFFIXES: dict[Method, tuple[str, ...]] = {
    "cpsat": (".pb", ".pbtxt"),
    "milp": (".lp", ".mps"),
}


class CheckMethod(StrEnum):
    """What `cross-check` compares; all but local search are methods of `solve`."""

    MINMAX = "minmax"
    LOCAL = "local"
    EXACT = "exact"
    CPSAT = "cpsat"
    MILP = "milp"


@dataclass(frozen=True)
class SolveOptions:
    """Options of `solver.solve`; the defaults prove optimality without a time limit.

    gap: relative; a plan within it of the bound is OPTIMAL. workers: processes of the
    exact search, threads of CP-SAT and HiGHS; with one, equal seeds give equal plans.
    write_model: file for the model of the plan's shape; PlannerError unless the method has one
    that can be written so.
    """

    method: Method = "exact"
    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    workers: int = 1
    write_model: Path | None = None

    def __post_init__(self) -> None:
        path = self.write_model
        if path is not None and path.suffix not in MODEL_SUFFIXES.get(self.method, ()):
            ways = (f"{' or '.join(known)} by {name}" for name, known in MODEL_SUFFIXES.items())
            raise PlannerError(
                f"cannot write {path} by method {self.method}; models are written as "
                + ", ".join(ways)
            )
