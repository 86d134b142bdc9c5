"""Small runs of CP-SAT that tests share."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ortools.sat.python import cp_model

from solver.backends import cpsat
from solver.backends.outcome import Outcome
from solver.options import SolveOptions

Found = TypeVar("Found")


def solved(model: cp_model.CpModel) -> Outcome:
    """The model solved to its end."""
    return cpsat.run(model, SolveOptions())


class _Collector(cp_model.CpSolverSolutionCallback):
    def __init__(self, variables: Sequence[cp_model.IntVar]) -> None:
        super().__init__()
        self.variables = variables
        self.found: list[list[int]] = []

    def on_solution_callback(self) -> None:
        """Keep the solution."""
        self.found.append([self.value(variable) for variable in self.variables])


def all_solutions(
    model: cp_model.CpModel, extract: Callable[[Sequence[int]], Found]
) -> list[Found]:
    """What `extract` makes of every solution of a model without objective, sorted."""
    variables = [
        model.get_int_var_from_proto_index(index) for index in range(len(model.proto.variables))
    ]
    collector = _Collector(variables)
    engine = cp_model.CpSolver()
    engine.parameters.enumerate_all_solutions = True
    engine.parameters.num_workers = 1
    engine.solve(model, collector)
    return sorted(extract(values) for values in collector.found)  # type: ignore[type-var]
