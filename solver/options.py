"""What the caller may choose about a search."""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Final, Literal, get_args

from formulations.errors import PlannerError, check_values

Method = Literal["exact", "minmax", "cpsat", "milp"]
#: Frameworks that `export` writes files for.
ExportTarget = Literal[
    "megatron", "megatron-bridge", "flagscale", "torchtitan", "deepspeed", "accelerate"
]

#: Recovery policies that `replay` plays.
PolicyName = Literal["ours", "restart", "redundancy"]

#: What runs the workers of a search: processes of this machine, or a Ray cluster.
Engine = Literal["processes", "ray"]

MAX_WORKERS: Final = 1024

#: Formats in which the model of a method can be written.
MODEL_SUFFIXES: dict[Method, tuple[str, ...]] = {
    "cpsat": (".pb", ".pbtxt"),
    "milp": (".lp", ".mps"),
}


class CheckMethod(StrEnum):
    """What `cross-check` compares; three heuristics beside methods of `solve`."""

    MINMAX = "minmax"
    LOCAL = "local"
    MEGATRON = "megatron"
    AMP = "amp"
    EXACT = "exact"
    CPSAT = "cpsat"
    MILP = "milp"


@dataclass(frozen=True)
class SolveOptions:
    """Options of `solver.solve`; the defaults prove optimality without a time limit.

    gap: relative; a plan within it of the bound is OPTIMAL. workers: processes of the
    exact search, threads of HiGHS; with one, equal seeds give equal plans.
    write_model: file for the model of the plan's configuration. engine, address: where the workers
    run; `ray` without an address starts a Ray cluster on this machine.

    Raises PlannerError for values out of range, and for a model that the method cannot write so.
    """

    method: Method = "exact"
    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    workers: int = 1
    write_model: Path | None = None
    engine: Engine = "processes"
    address: str | None = None

    def __post_init__(self) -> None:
        limit = self.time_limit_s
        check_values(
            (self.method in get_args(Method), "method", self.method, " or ".join(get_args(Method))),
            (limit is None or isfinite(limit), "time_limit_s", limit, "None or seconds"),
            (0 <= self.gap < 1, "gap", self.gap, "at least 0 and below 1; 0.01 is one per cent"),
            (0 <= self.seed < 1 << 31, "seed", self.seed, "0 to 2^31 - 1"),
            (self.engine in get_args(Engine), "engine", self.engine, " or ".join(get_args(Engine))),
            (1 <= self.workers <= MAX_WORKERS, "workers", self.workers, f"1 to {MAX_WORKERS}"),
        )
        path = self.write_model
        if path is not None and path.suffix not in MODEL_SUFFIXES.get(self.method, ()):
            ways = (
                f"{' or '.join(suffixes)} by {name}" for name, suffixes in MODEL_SUFFIXES.items()
            )
            raise PlannerError(
                f"cannot write {path} by method {self.method}; models are written as "
                + ", ".join(ways)
            )
