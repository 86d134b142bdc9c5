"""Options of commands: what options.toml says of them, checks, times and numbers of workers."""

import inspect
import math
import os
import tomllib
from collections.abc import Callable
from importlib import resources
from operator import getitem
from typing import Annotated, Any, ParamSpec

import typer

from formulations.errors import PlannerError
from solver.options import MAX_WORKERS, Engine

P = ParamSpec("P")


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


#: What options.toml says of parameters, by command.
OPTIONS: dict[str, Any] = tomllib.loads(
    resources.files("solver.cli").joinpath("options.toml").read_text(encoding="utf-8")
)
_CHECKS = {"finite": finite, "positive": positive, "below_one": _below_one}


def with_options(name: str, command: Callable[P, None]) -> Callable[P, None]:
    """The command, whose parameters are its options and arguments as options.toml says."""
    signature = inspect.signature(command, eval_str=True)
    parameters = []
    for parameter in signature.parameters.values():
        stated = (table.get(parameter.name, {}) for table in (OPTIONS["shared"], OPTIONS[name]))
        shared, own = ({"help": text} if isinstance(text, str) else text for text in stated)
        settings = {**shared, **own}
        settings["callback"] = _CHECKS.get(settings.pop("check", None))
        place, flag = settings.pop("argument", None), parameter.name.removeprefix("as_")
        # Of a bool there is one name, without one for its opposite
        names = [f"--{flag.replace('_', '-')}"] if parameter.annotation is bool else []
        kind: Any = typer.Option(*names, **settings)
        if place:
            kind = typer.Argument(metavar=place, help=settings["help"])
        annotation = getitem(Annotated, (parameter.annotation, kind))
        parameters.append(parameter.replace(annotation=annotation))
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command
