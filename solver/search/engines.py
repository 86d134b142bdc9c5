"""The families of models that the cut loop can drive, each with the engine that runs it.

A library is loaded when its family is asked for, not before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.fixed import ALL_FREE, Given
from formulations.paths import PathCut
from solver.backends.outcome import Outcome
from solver.interrupt import held_back
from solver.options import SolveOptions

Family = Literal["cpsat", "milp"]


class OneShape(Protocol):
    """The part of one shape: `formulations.cpsat.step_time`, `formulations.milp.step_time`.

    The least step time in it is a lower bound of every plan's, for any cuts.
    """

    model: Any
    cuts: set[PathCut]

    def limit_step_time(self, limit_ns: int) -> None:
        """Allow only plans with this step time or a smaller one."""

    def raise_step_time(self, bound_ns: int) -> None:
        """Tell the engine a proved lower bound."""

    def add_cut(self, cut: PathCut) -> bool:
        """Bound the step time by a path; False if it is known already."""


class Built(Protocol):
    """A native model of several shapes: `formulations.cpsat.degrees`, `formulations.milp.degrees`.

    Of these one is chosen; its step time counts as often as its weight says.
    """

    model: Any

    @property
    def parts(self) -> Sequence[OneShape]:
        """The shapes, in the order in which they were added."""

    def add_shape(self, tables: CostTables, weight: int = 1, given: Given = ALL_FREE) -> OneShape:
        """One more shape; what is None is decided."""

    def hint(self, shape: int, decisions: Decisions) -> None:
        """Start the engine from these decisions of a shape."""

    def extract(self, values: Sequence[float]) -> tuple[int, Decisions] | None:
        """Shape and decisions in a solution vector; None if it does not stand for any."""


@dataclass(frozen=True)
class ModelEngine:
    """A family of models and its engine.

    build: an empty model of several shapes. joint: the model of one. run: what the engine finds out
    about a native model. write: writes a native model in the format of a file's suffix.
    exclude: leaves a plan out of a shape's part; None if the engine counts in integers and thus
    never proposes a plan that the model rules out.
    """

    build: Callable[[], Built]
    joint: Callable[[CostTables, Given], OneShape]
    run: Callable[[Any, SolveOptions], Outcome]
    write: Callable[[Any, Path], None]
    exclude: Callable[[Any, Decisions], None] | None = None


def model_engine(family: Family) -> ModelEngine:
    """The engine of a family."""
    with held_back():
        return _loaded(family)


def _loaded(family: Family) -> ModelEngine:
    if family == "cpsat":
        from formulations.cpsat import degrees, joint
        from solver.backends import cpsat

        return ModelEngine(degrees.Built, joint.build, partial(cpsat.run, lean=True), cpsat.write)
    from formulations.milp import degrees as milp_degrees
    from formulations.milp import joint as milp_joint
    from formulations.milp import step_time
    from solver.backends import highs

    return ModelEngine(
        milp_degrees.Built, milp_joint.build, highs.run, highs.write, step_time.Built.exclude
    )
