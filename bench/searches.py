"""What records of searches share: the instance and options, and a process for each."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any, ParamSpec

from formulations.instance import Instance
from solver.options import SolveOptions
from solver.result import Result

P = ParamSpec("P")
Figures = dict[str, Any]


def digest(instance: Instance) -> str:
    """Of an instance as read, profile and catalogue figures included."""
    return hashlib.sha256(instance.model_dump_json().encode()).hexdigest()


def head(name: str, instance: Instance, options: SolveOptions) -> Figures:
    """What was asked."""
    return {"instance": name, "instance_sha256": digest(instance), "options": asdict(options)}


def outcome_of(result: Result) -> Figures:
    """What a search says of an instance, for its record."""
    names = ("status", "termination", "step_time_ns", "objective", "bound", "gap", "runtime_s")
    config = result.plan and result.plan.config.model_dump(mode="json")
    return {name: getattr(result, name) for name in names} | {"shape": config}


def apart(measure: Callable[P, Figures], *args: P.args, **kwargs: P.kwargs) -> Figures:
    """Figures measured in a fresh process; status "killed" if that does not survive."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(measure, *args, **kwargs).result()
        except BrokenProcessPool:
            nothing = dict.fromkeys(("objective", "bound", "step_time_ns", "gap"))
            return {"status": "killed", **nothing}
