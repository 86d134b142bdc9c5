"""The families of models that the cut loop can drive, each with the engine that runs it.

A library is loaded when its family is asked for, not before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from formulations.models.model import Model
from solver.backends.outcome import Outcome
from solver.interrupt import held_back
from solver.options import SolveOptions

Family = Literal["cpsat", "milp"]


@dataclass(frozen=True)
class ModelEngine:
    """A family of models and its engine.

    model: an empty model. run: what the engine finds out about a native model. write: writes a
    native model in the format of a file's suffix. excludes: whether plans that the model rules out
    may be proposed, and must be left out one by one; not if the engine counts in integers.
    """

    model: Callable[[], Model]
    run: Callable[[Any, SolveOptions], Outcome]
    write: Callable[[Any, Path], None]
    excludes: bool


def model_engine(family: Family) -> ModelEngine:
    """The engine of a family."""
    with held_back():
        if family == "cpsat":
            from formulations.models.cpsat import CpSat
            from solver.backends import cpsat

            return ModelEngine(CpSat, partial(cpsat.run, lean=True), cpsat.write, excludes=False)
        from formulations.models.milp import Milp
        from solver.backends import highs

        return ModelEngine(Milp, highs.run, highs.write, excludes=True)
