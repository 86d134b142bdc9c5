"""Options of commands: what options.toml says of them, checks, times and numbers of workers."""

import inspect
import math
import os
import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from importlib import resources
from inspect import Parameter
from operator import getitem
from typing import Annotated, Any, get_type_hints

import typer

from formulations.errors import PlannerError
from solver.options import MAX_WORKERS, SolveOptions


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


#: What options.toml says of parameters, by command.
OPTIONS: dict[str, Any] = tomllib.loads(
    resources.files("solver.cli").joinpath("options.toml").read_text(encoding="utf-8")
)
_CHECKS = {"finite": finite, "positive": positive, "below_one": _below_one}
#: Fields of SolveOptions by the names of options, and their types here.
_FIELDS = {field.name.removesuffix("_s"): field for field in fields(SolveOptions)}
_TYPES = {**get_type_hints(SolveOptions), "workers": int | None}


def with_options(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose parameters are its options and arguments as options.toml says.

    For its parameter `options` it has those of a search that the table lists, which make it.
    """
    signature, table = inspect.signature(command, eval_str=True), OPTIONS[name]
    parameters = dict(signature.parameters)
    parameters.pop("options", None)
    for option in table.get("search", ()):
        field = _FIELDS[option]
        default = None if option == "workers" else field.default
        parameters[option] = Parameter(
            option, Parameter.KEYWORD_ONLY, default=default, annotation=_TYPES[field.name]
        )
    for option, parameter in parameters.items():
        settings = dict[str, Any]()
        for said in (OPTIONS["shared"].get(option, {}), table.get(option, {})):
            settings |= {"help": said} if isinstance(said, str) else said
        settings["callback"] = _CHECKS.get(settings.pop("check", None))
        default, place = settings.pop("default", parameter.default), settings.pop("argument", None)
        # Of a bool there is one name, without one for its opposite
        flag = f"--{option.removeprefix('as_').replace('_', '-')}"
        kind: Any = typer.Option(*[flag] * (parameter.annotation is bool), **settings)
        if place:
            kind = typer.Argument(metavar=place, help=settings["help"])
        annotation = getitem(Annotated, (parameter.annotation, kind))
        parameters[option] = parameter.replace(default=default, annotation=annotation)

    @wraps(command)
    def called(**given: Any) -> None:
        if "search" in table:
            chosen = {_FIELDS[option].name: given.pop(option) for option in table["search"]}
            given["options"] = _searching(**chosen)
        command(**given)

    ordered = signature.replace(parameters=[*parameters.values()])
    called.__signature__ = ordered  # type: ignore[attr-defined]
    return called


def _searching(**chosen: Any) -> SolveOptions:
    """The options of a search; as many workers as the machines have cores, unless stated."""
    address, engine = chosen.get("address"), chosen.get("engine")
    if address is not None and engine != "ray":
        raise PlannerError(f"--address is that of a Ray cluster; found: --engine {engine}")
    cores = MAX_WORKERS if address is not None else len(os.sched_getaffinity(0))
    return SolveOptions(**{**chosen, "workers": chosen["workers"] or cores})
