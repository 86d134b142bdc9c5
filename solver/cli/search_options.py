"""Options that several commands share."""

import math
import os
from typing import Any

import typer

from formulations.errors import PlannerError
from solver.options import MAX_WORKERS, Engine


def finite(value: float | None) -> float | None:
    """Refuses nan and inf, which pass for numbers within a range."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def positive(value: float | None) -> float | None:
    """Refuses what is not a finite number above 0; None stays None."""
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value} is not above 0")
    return finite(value)


def _below_one(value: float) -> float:
    if value >= 1:
        raise typer.BadParameter(f"{value} is not below 1; 0.01 is one per cent")
    finite(value)
    return value


def time_ns(option: str, text: str, *, least_ns: int = 0) -> int:
    """Nanoseconds of an option such as 10m; PlannerError for another text or a shorter time."""
    from solver.replay.trace import TIME_ALLOWED, length_ns

    length = length_ns(text)
    if length is None or length < least_ns:
        what = "a time above 0" if least_ns else "a time"
        raise PlannerError(f"{option} {text!r} is not {what}; allowed: {TIME_ALLOWED}")
    return length


def num_workers(workers: int | None, engine: Engine, address: str | None) -> int:
    """Those asked for, else as many as the machines have cores. Raises PlannerError."""
    if address is not None and engine != "ray":
        raise PlannerError(f"--address is that of a Ray cluster; found: --engine {engine}")
    return workers or (all_cores() if address is None else MAX_WORKERS)


def all_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def option(text: str, default: object = None, **settings: Any) -> Any:
    """An option with its help text; settings: those of `typer.Option`; `...`: it must be given."""
    return typer.Option(default, help=text, **settings)


def argument(name: str, text: str) -> Any:
    """What must be given, by its place, with its help text."""
    return typer.Argument(..., metavar=name, help=text)


def flag(name: str, text: str) -> Any:
    """A switch that is off unless named."""
    return typer.Option(False, name, help=text)


def limit(text: str, default: float | None = None) -> Any:
    """A limit in seconds, with what it limits."""
    return option(text, default, callback=positive, metavar="SECONDS")


def gap_option(default: float = 0.0) -> Any:
    """How far from the best plan a plan may be."""
    text = "Relative distance to the best plan that is good enough, such as 0.01."
    return option(text, default, min=0.0, callback=_below_one)


INSTANCE = argument("INSTANCE", "Instance file (YAML).")
JSON = flag("--json", "Print one JSON object instead of text.")
DETAILS = flag(
    "--details",
    "Also what the figures rest on and assume, what limits the step, what other targets would "
    "bring, and what closed the configurations.",
)
ENGINE = option(
    "What runs the workers: processes of this machine, or ray: a Ray cluster "
    "(pip install 'hetplan[ray]').",
    "processes",
)
ADDRESS = option(
    "Of the Ray cluster, or auto; unless given, one is started on this machine.",
    metavar="HOST:PORT",
)
STUDY = option(
    "Keep what is closed in this file, and go on from there: the same command after a "
    "kill loses the work in hand only. On a disk of this machine, not of the network."
)
SEED = option("Seed of everything random.", 0, min=0, max=2**31 - 1)
WORKERS = option(
    "Processes of the exact search, threads of HiGHS; unless given, one a core.",
    min=1,
    max=MAX_WORKERS,
)
