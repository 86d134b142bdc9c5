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
    native model in the format of a file's suffix. counts_whole: in integers. An engine that counts
    in floats may propose plans that the model rules out, which must be left out one by one, and
    may call a model infeasible that has plans.
    """

    model: Callable[[], Model]
    run: Callable[[Any, SolveOptions], Outcome]
    write: Callable[[Any, Path], None]
    counts_whole: bool


def model_engine(family: Family) -> ModelEngine:
    """The engine of a family."""
    with held_back():
        if family == "cpsat":
            from formulations.models.cpsat import CpSat
            from solver.backends import cpsat

            run = partial(cpsat.run, lean=True)
            return ModelEngine(CpSat, run, cpsat.write, counts_whole=True)
        from formulations.models.milp import Milp
        from solver.backends import highs

        return ModelEngine(Milp, highs.run, highs.write, counts_whole=False)
