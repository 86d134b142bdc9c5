"""CP-SAT and MILP as engines of the same formulations, and questions that both can answer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given
from formulations.models.cpsat import CpSat
from formulations.models.degrees import ManyConfigs
from formulations.models.milp import Milp
from formulations.models.model import Model, Term, negated, total_of
from formulations.models.step_time import OneConfig
from solver.backends import cpsat, highs
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status
from solver.search.paths import first_cuts
from tests.conftest import present
from tests.random_configs import random_tables
from tests.recorded import as_recorded, digest


@dataclass(frozen=True)
class Twin:
    """An engine: an empty model, and what runs its native one."""

    name: str
    model: Callable[[], Model]
    run: Callable[[Any, SolveOptions], Outcome]


CPSAT = Twin("cpsat", CpSat, cpsat.run)
MILP = Twin("milp", Milp, highs.run)
TWINS = (CPSAT, MILP)


def solved(model: Model) -> Outcome:
    run = cpsat.run if isinstance(model, CpSat) else highs.run
    return run(model.native, SolveOptions())


def has_solution(model: Model) -> bool:
    """Whether the model has a solution, proved either way."""
    status = solved(model).status
    assert status in (Status.OPTIMAL, Status.INFEASIBLE)
    return status is Status.OPTIMAL


def all_solutions(model: Model, part: Any) -> list[tuple[int, ...]]:
    """What a part extracts from every solution of a model without objective, sorted.

    One after the other, each excluded as soon as it is known.
    """
    found = list[tuple[int, ...]]()
    model.minimize(model.time("any", 1))
    while (values := solved(model).values) is not None:
        solution = model.solution(values)
        found.append(part.extract(solution))
        pairs = list(part.assignment(found[-1]))
        assert solution.stands(pairs)
        if not pairs:
            break
        model.exclude(22, pairs)
    return sorted(found)


def fix(model: Model, part: Any, decision: Any) -> None:
    """Let a free part take nothing but one decision."""
    for variable, value in part.assignment(decision):
        model.some_of(0, [variable if value else negated(variable)])


def least_values(model: Model, terms: Iterable[Term]) -> list[int]:
    """Values of linear terms when their sum is minimised."""
    times = []
    for n, term in enumerate(terms):
        times.append(model.time(f"term_{n}"))
        model.at_most(0, term, times[-1])
    model.minimize(total_of(*times))
    outcome = solved(model)
    assert outcome.status is Status.OPTIMAL
    solution = model.solution(present(outcome.values))
    return [solution.value(time) for time in times]


def size_of(model: Model) -> list[object]:
    """Variables, rows, and a digest of the model's text."""
    if isinstance(model, CpSat):
        rows, text = len(model.native.proto.constraints), str(model.native.proto)
    else:
        rows, text = model.native.numConstraints(), str(model.native)
    return [len(model.variables), rows, digest(text)]


def with_first_cuts(tables: CostTables, built: OneConfig) -> OneConfig:
    """The model with the paths that searches begin with."""
    config = tables.config
    step = config.pp if config.vpp > 1 else 1
    for m in range(step, tables.num_micro_batches + 1, step):
        for cut in first_cuts(config.schedule, config.pp, m, config.vpp):
            built.add_cut(cut)
    return built


def check_sizes(name: str, drawn: Mapping[str, CostTables], given: Given = ALL_FREE) -> None:
    """Whether the models of these configurations are those stored in a file, in both engines."""
    figures = dict[str, object]()
    for case, tables in drawn.items():
        for twin in TWINS:
            built = with_first_cuts(tables, OneConfig(twin.model(), tables, given))
            built.raise_step_time(1000)
            figures[f"{case} {twin.name}"] = size_of(built.model)
    as_recorded(name, figures)


def check_alternatives(twin: Twin) -> None:
    """The same of models with two alternatives each, by the name of the engine."""
    figures = dict[str, object]()
    for seed in range(0, 12, 2):
        many = ManyConfigs(twin.model())
        for number in (seed, seed + 1):
            tables = random_tables(number, zones=seed % 4 > 0)
            part = many.add_config(tables, 1 + number, Given(max_step_time_ns=10**12))
            with_first_cuts(tables, part).raise_step_time(1000)
        figures[f"{seed}"] = size_of(many.model)
    as_recorded(twin.name, figures)
