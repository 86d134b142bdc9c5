"""The CP-SAT and the MILP models of the same questions, behind one face."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import pulp
from ortools.sat.python import cp_model

from formulations.cpsat import joint as cpsat_joint
from formulations.cpsat import layer_to_stage as cpsat_layer_to_stage
from formulations.cpsat import microbatches as cpsat_microbatches
from formulations.cpsat import node_order as cpsat_node_order
from formulations.milp import joint as milp_joint
from formulations.milp import layer_to_stage as milp_layer_to_stage
from formulations.milp import microbatches as milp_microbatches
from formulations.milp import node_order as milp_node_order
from solver.backends import cpsat, highs
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status


@dataclass(frozen=True)
class Twin:
    """One family of models: a module per question, and an empty native model."""

    name: str
    layer_to_stage: ModuleType
    node_order: ModuleType
    microbatches: ModuleType
    joint: ModuleType
    model: Callable[[], Any]


CPSAT = Twin(
    "cpsat",
    cpsat_layer_to_stage,
    cpsat_node_order,
    cpsat_microbatches,
    cpsat_joint,
    cp_model.CpModel,
)
MILP = Twin(
    "milp",
    milp_layer_to_stage,
    milp_node_order,
    milp_microbatches,
    milp_joint,
    lambda: pulp.LpProblem("test"),
)
TWINS = (CPSAT, MILP)


class Part(Protocol):
    """A free part of a model."""

    def extract(self, values: Any) -> tuple[int, ...]:
        """The decision in a solution."""


def solved(model: Any) -> Outcome:
    """The model solved to its end, by its own engine."""
    run = cpsat.run if isinstance(model, cp_model.CpModel) else highs.run
    return run(model, SolveOptions())


def has_solution(model: Any) -> bool:
    """Whether the model has a solution, proved either way."""
    status = solved(model).status
    assert status in (Status.OPTIMAL, Status.INFEASIBLE)
    return status is Status.OPTIMAL


def number_of_variables(model: Any) -> int:
    """Variables that a model has."""
    if isinstance(model, cp_model.CpModel):
        return len(model.proto.variables)
    return len(model.variables())


class _Collector(cp_model.CpSolverSolutionCallback):
    def __init__(self, variables: Sequence[cp_model.IntVar]) -> None:
        super().__init__()
        self.variables = variables
        self.found: list[list[int]] = []

    def on_solution_callback(self) -> None:
        """Keep the solution."""
        self.found.append([self.value(variable) for variable in self.variables])


def all_solutions(model: Any, part: Any) -> list[tuple[int, ...]]:
    """What a part extracts from every solution of a model without objective, sorted."""
    if isinstance(model, cp_model.CpModel):
        return sorted(map(part.extract, _all_of_cpsat(model)))
    return sorted(_all_of_milp(model, part))


def _all_of_cpsat(model: cp_model.CpModel) -> list[list[int]]:
    collector = _Collector(
        [model.get_int_var_from_proto_index(index) for index in range(len(model.proto.variables))]
    )
    engine = cp_model.CpSolver()
    engine.parameters.enumerate_all_solutions = True
    engine.parameters.num_workers = 1
    engine.solve(model, collector)
    return collector.found


def _all_of_milp(model: pulp.LpProblem, part: Any) -> Iterator[tuple[int, ...]]:
    """One after the other, each excluded as soon as it is known."""
    model.setObjective(pulp.LpAffineExpression(model.add_variable("any", 0, 1)))
    while (values := solved(model).values) is not None:
        named = {v.name: round(x) for v, x in zip(model.variables(), values, strict=True)}
        found: tuple[int, ...] = part.extract(named)
        yield found
        pairs = list(part.assignment(found))
        assert all(named[variable.name] == value for variable, value in pairs)
        if not pairs:
            return
        model.addConstraint(pulp.lpSum((1 - v) if value else v for v, value in pairs) >= 1)


def fix(model: Any, part: Any, decision: Sequence[int]) -> None:
    """Let a free part take nothing but one decision."""
    if isinstance(model, cp_model.CpModel):
        part.hint(decision)
        hint = model.proto.solution_hint
        for index, value in zip(hint.vars, hint.values, strict=True):
            model.add(model.get_int_var_from_proto_index(index) == value)
        return
    for variable, value in part.assignment(decision):
        variable.lowBound = variable.upBound = value


def least_values(model: Any, terms: Iterable[Any]) -> list[int]:
    """Values of linear terms when their sum is minimised."""
    known = list(terms)
    if isinstance(model, cp_model.CpModel):
        bounds = [model.new_int_var(0, 1 << 50, f"term[{n}]") for n in range(len(known))]
        for bound, term in zip(bounds, known, strict=True):
            model.add(bound >= term)
        model.minimize(cp_model.LinearExpr.sum(bounds))
        values = solved(model).values
        assert values is not None
        return [int(values[bound.index]) for bound in bounds]
    times = [model.add_variable(f"term_{n}", 0) for n in range(len(known))]
    for time, term in zip(times, known, strict=True):
        model.addConstraint(time - term >= 0)
    model.setObjective(pulp.lpSum(times))
    outcome = solved(model)
    assert outcome.status is Status.OPTIMAL
    named = {v.name: x for v, x in zip(model.variables(), outcome.values or (), strict=True)}
    return [round(named[time.name]) for time in times]
