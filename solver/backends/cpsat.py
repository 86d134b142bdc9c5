"""Runs CP-SAT on a native model; the only place that knows its status codes.

Two parts of 9.15 lose optima where numbers exceed 2^31, and are off: in presolve the search for
constraints that include others (google/or-tools#5293), and after it the detection of variables that
are above one of several expressions.
"""

import math
from pathlib import Path

from ortools.sat.python import cp_model

from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination

#: A run that stops so long before its time limit was interrupted.
EARLY_S = 0.5

#: Written above a model in text.
NOTE = """\
# hetplan: the joint model of one configuration, times in nanoseconds. Solve it with
# presolve_inclusion_work_limit: 0, auto_detect_greater_than_at_least_one_of: false (tried: OR-Tools
# 9.15, which otherwise loses optima, google/or-tools#5293).
"""


def run(model: cp_model.CpModel, options: SolveOptions, lean: bool = False) -> Outcome:
    """What CP-SAT finds out about a model that minimises an integer >= 0.

    Uses the time limit, seed, workers and gap of the options. lean: one worker, no probing and no
    linear relaxation, a seventh of the time where most of the model is about configurations that
    are not chosen. One worker and one seed give the same solution, unless the time limit strikes.
    Raises ValueError for an invalid model.
    """
    engine = cp_model.CpSolver()
    engine.parameters.num_workers = options.workers
    engine.parameters.random_seed = options.seed
    engine.parameters.relative_gap_limit = options.gap
    engine.parameters.linearization_level = 2  # rows under literals join the LP
    engine.parameters.presolve_inclusion_work_limit = 0  # see the module
    engine.parameters.auto_detect_greater_than_at_least_one_of = False
    if lean:
        engine.parameters.num_workers = 1
        engine.parameters.linearization_level = 0
        engine.parameters.cp_model_probing_level = 0
    if options.time_limit_s is not None:
        engine.parameters.max_time_in_seconds = max(options.time_limit_s, 0.0)
    code = engine.solve(model)
    if code == cp_model.MODEL_INVALID:
        raise ValueError(f"CP-SAT refuses the model: {model.validate()}")
    status = Status[engine.status_name(code)]  # its names are ours
    has_solution = status in (Status.OPTIMAL, Status.FEASIBLE)
    closed = status in (Status.OPTIMAL, Status.INFEASIBLE)
    # Time, or Ctrl-C, which CP-SAT keeps to itself
    limit_s = options.time_limit_s
    early = limit_s is None or engine.wall_time < limit_s - EARLY_S
    stopped_by = Termination.INTERRUPTED if early else Termination.TIME_LIMIT
    # From the integer that CP-SAT itself keeps: its float may be a step of doubles too high
    bound = None
    if status is not Status.INFEASIBLE and math.isfinite(engine.best_objective_bound):
        proved: int = engine.response_proto.inner_objective_lower_bound
        bound = proved + round(model.proto.objective.offset)
    return Outcome(
        status=status,
        termination=Termination.CLOSED if closed else stopped_by,
        objective=round(engine.objective_value) if has_solution else None,
        bound=bound,
        runtime_s=engine.wall_time,
        values=tuple(engine.response_proto.solution) if has_solution else None,
    )


def write(model: cp_model.CpModel, path: Path) -> None:
    """Writes a model, without its hints: as text if the name ends with txt, else as binary."""
    model.clear_hints()  # type: ignore[no-untyped-call]
    if not model.export_to_file(str(path)):
        raise OSError(f"CP-SAT could not write {path.name}")
    if path.suffix == ".pbtxt":
        path.write_text(NOTE + path.read_text())
