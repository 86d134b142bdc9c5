"""The families of models that the cut loop can drive, each with the engine that runs it.

A library is loaded when its family is asked for, not before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.paths import PathCut
from solver.backends.outcome import Outcome
from solver.interrupt import held_back
from solver.options import SolveOptions

Family = Literal["cpsat", "milp"]


class Built(Protocol):
    """A native model of one shape: `formulations.cpsat.step_time`, `formulations.milp.step_time`.

    Its minimum is a lower bound of every plan's step time, for any cuts.
    """

    model: Any
    stages: StageCosts
    cuts: set[PathCut]

    def limit_step_time(self, limit_ns: int) -> None:
        """Allow only plans with this step time or a smaller one."""

    def raise_step_time(self, bound_ns: int) -> None:
        """Tell the engine a proved lower bound."""

    def add_cut(self, cut: PathCut) -> bool:
        """Bound the step time by a path; False if it is known already."""

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""

    def extract(self, values: Sequence[float]) -> Decisions | None:
        """The decisions in a solution vector; None if it does not stand for any."""


class Build(Protocol):
    """The joint model of one shape; what is None is decided."""

    def __call__(
        self,
        tables: CostTables,
        order: Sequence[int] | None = None,
        boundaries: Sequence[int] | None = None,
        micro_batches: Sequence[int] | None = None,
        largest_share: int | None = None,
        max_step_time_ns: int | None = None,
    ) -> Built:
        """Build it."""


class Run(Protocol):
    """What an engine finds out about a native model."""

    def __call__(self, model: Any, options: SolveOptions) -> Outcome:
        """Run it."""


@dataclass(frozen=True)
class ModelEngine:
    """A family of models and its engine.

    write: writes a native model in the format of a file's suffix.
    exclude: leaves a plan out of a model; None if the engine counts in integers and thus never
    proposes a plan that the model rules out.
    """

    build: Build
    run: Run
    write: Callable[[Any, Path], None]
    exclude: Callable[[Any, Decisions], None] | None = None

    @property
    def exact(self) -> bool:
        """Whether the engine counts in integers."""
        return self.exclude is None


def model_engine(family: Family) -> ModelEngine:
    """The engine of a family."""
    with held_back():
        return _loaded(family)


def _loaded(family: Family) -> ModelEngine:
    if family == "cpsat":
        from formulations.cpsat import joint
        from solver.backends import cpsat

        return ModelEngine(joint.build, cpsat.run, cpsat.write)
    from formulations.milp import joint as milp_joint
    from formulations.milp import step_time
    from solver.backends import highs

    return ModelEngine(milp_joint.build, highs.run, highs.write, step_time.Built.exclude)
