"""Runs CP-SAT on a native model; the only place that knows its status codes."""

import math
from pathlib import Path

from ortools.sat.python import cp_model

from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination

_STATUS = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.UNKNOWN: Status.UNKNOWN,
}


def run(model: cp_model.CpModel, options: SolveOptions) -> Outcome:
    """What CP-SAT finds out about a model that minimises an integer >= 0.

    Uses the time limit, seed, workers and gap of the options. One worker and one seed give the
    same solution, unless the time limit strikes. Raises ValueError for an invalid model.
    """
    engine = cp_model.CpSolver()
    engine.parameters.num_workers = options.workers
    engine.parameters.random_seed = options.seed
    engine.parameters.relative_gap_limit = options.gap
    engine.parameters.linearization_level = 2  # rows under literals join the LP
    if options.time_limit_s is not None:
        engine.parameters.max_time_in_seconds = max(options.time_limit_s, 0.0)
    code = engine.solve(model)
    if code not in _STATUS:
        raise ValueError(f"CP-SAT refuses the model: {model.validate()}")
    status = _STATUS[code]
    found = status in (Status.OPTIMAL, Status.FEASIBLE)
    closed = status in (Status.OPTIMAL, Status.INFEASIBLE)
    return Outcome(
        status=status,
        termination=Termination.CLOSED if closed else Termination.TIME_LIMIT,
        objective=round(engine.objective_value) if found else None,
        bound=None if status is Status.INFEASIBLE else _bound(engine.best_objective_bound),
        runtime_s=engine.wall_time,
        values=tuple(engine.response_proto.solution) if found else None,
    )


def write(model: cp_model.CpModel, path: Path) -> None:
    """Writes a model, without its hints: as text if the name ends with txt, else as binary."""
    model.clear_hints()  # type: ignore[no-untyped-call]
    if not model.export_to_file(str(path)):
        raise OSError(f"CP-SAT could not write {path.name}")


def _bound(proved: float) -> int | None:
    """Least integer that a float bound allows; the objective is an integer below 2^53."""
    return math.ceil(proved - 1e-6) if math.isfinite(proved) else None
